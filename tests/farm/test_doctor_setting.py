"""`specfarm doctor SETTING`: each thing a machine may lack, and how to get it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from farm.doctor_check import Check, Gpu
from farm.doctor_setting import overview, setting_checks
from settings.loading import list_settings, load_setting
from settings.revisions import revisions_file
from tests.farm.cli.conftest import Cli, cli  # noqa: F401

NAME = "h200_c1_muse-glimmer-30b_dspark"
H200 = Gpu("NVIDIA H200", 150.1)


@pytest.fixture(autouse=True)
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SPECFARM_DATA", str(tmp_path))
    monkeypatch.delenv("SPECFARM_SGLANG_PYTHON", raising=False)
    return tmp_path


def found(name: str, *gpus: Gpu) -> dict[str, Check]:
    return {check.what: check for check in setting_checks(load_setting(name), gpus)}


def test_gpu_type_and_memory() -> None:
    assert found(NAME, H200)["GPU h200"].state == found(NAME, H200)["GPU memory"].state == "ok"
    lacks = found(NAME)["GPU h200"]
    assert lacks.state == "missing" and "NVIDIA H200" in lacks.remedy and "72 GB" in lacks.remedy
    other = found("h100_c1_qwen3.8-27b_dflash2", H200)
    assert (other["GPU h100"].state, other["GPU h100"].found) == ("missing", "NVIDIA H200")
    small = found(NAME, Gpu("NVIDIA H200", 70.0))["GPU memory"]
    assert (small.state, small.remedy) == ("missing", "needs 72 GB")


def test_weights_prompts_and_what_an_open_revision_was_resolved_to(data: Path) -> None:
    checks = found(NAME, H200)
    target, drafter = checks["target weights"], checks["drafter weights"]
    assert target.state == drafter.state == checks["prompt sets"].state == "missing"
    assert "meta-models/Muse-Glimmer-30B at a4e59da52a7b, 59.6 GB" in target.found
    assert "to be resolved at the first download" in drafter.found
    assert drafter.remedy == f"scripts/download_models.sh {NAME}"
    assert checks["prompt sets"].found == "not here: math500, mbpp"
    entry = {"revision": "ab" * 20, "resolved": "2026-11-30T00:00:00Z"}
    key = "model:DaoCloud/Muse-Glimmer-30B-DSpark"
    revisions_file().write_text(json.dumps({key: entry}))
    drafter = found(NAME, H200)["drafter weights"]
    assert "at abababababab, recorded in resolved_revisions.json" in drafter.found
    folder = data / "shared" / "models" / "Muse-Glimmer-30B-DSpark-abababababab"
    folder.mkdir(parents=True)
    made = {"format": 1, "source": "hub", "identity": "ab" * 20}
    (folder / "provenance.json").write_text(json.dumps(made))
    assert found(NAME, H200)["drafter weights"].state == "ok"
    revisions_file().write_text("no json")
    spoilt = found(NAME, H200)["drafter weights"]
    assert spoilt.state == "missing" and "Restore it, or delete it" in spoilt.remedy


def test_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    assert found(NAME)["disk for weights"].found.startswith("64.9 GB to download")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=60e9))
    lacks = found(NAME)["disk for weights"]
    assert lacks.state == "missing" and "free 5.9 GB, or set SPECFARM_DATA" in lacks.remedy


def test_the_baseline_is_a_note_with_the_version_to_install() -> None:
    baseline = found(NAME, H200)["baseline sglang-0.5.21"]
    assert baseline.state == "note" and "pip install sglang==0.5.21" in baseline.remedy


def test_what_is_fetched_at_first_use_does_not_stand_in_the_way() -> None:
    checks = found("cpu_c1_smollm2-135m_ngram")
    assert checks["target weights"].state == "note"
    assert "first use" in checks["target weights"].remedy
    assert "drafter weights" not in checks and "prompt sets" not in checks


def test_a_line_on_every_setting(cli: Cli) -> None:  # noqa: F811
    lines = overview([H200])
    assert [line.what for line in lines] == [f"setting {name}" for name in list_settings()]
    by_name = {line.what: line for line in lines}
    assert by_name["setting cpu_c1_smollm2-135m_ngram"].found == "can run here"
    muse = by_name[f"setting {NAME}"]
    assert (muse.state, muse.remedy) == ("note", f"specfarm doctor {NAME}")
    assert muse.found == "lacks target weights, drafter weights, prompt sets"
    rows = cli("doctor", "--json").lines()
    assert {line.what for line in lines} <= {row["what"] for row in rows}
    ran = cli("doctor", NAME, "--json")
    assert ran.code == 2
    assert {row["what"]: row["state"] for row in ran.lines()}["target weights"] == "missing"
