"""Mechanism folders: schema errors name file and field, preconditions, and that all apply."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from engines.registry import engine_driver
from engines.tree_store import TreeStore
from explorers.conformance import applied
from explorers.mechanism import MechanismError, Preconditions, load_mechanism
from explorers.memory_explorer import CANARIES, CATALOGUE
from settings.loading import load_setting

SETTING = load_setting("cpu_c1_smollm2-135m_ngram")
GOOD = """
name = "good"
component = "draft"
hypothesis = "why"
patch = "change.patch"
[predicted]
speed_ratio = 1.1
reason = "because"
"""

SHIPPED = sorted([*CATALOGUE.glob("*/mechanism.toml"), *CANARIES.glob("*/mechanism.toml")])


def folder(tmp_path: Path, text: str, patch: str | None = "a diff") -> Path:
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "mechanism.toml").write_text(text)
    if patch is not None:
        (tmp_path / "m" / "change.patch").write_text(patch)
    return tmp_path / "m"


def test_a_good_folder_becomes_a_proposal(tmp_path: Path) -> None:
    path = folder(tmp_path, GOOD)
    proposal = load_mechanism(path).proposal(path, "memory")
    assert (proposal.mechanism, proposal.change.patch) == ("good", "a diff")
    assert (proposal.prediction.speed_ratio, proposal.kind) == (1.1, "mechanism")


@pytest.mark.parametrize(
    ("old", "new", "field"),
    [
        ('name = "good"', 'name = "Not Good"', "name"),
        ('name = "good"', "", "name"),
        ('component = "draft"', "component = 3", "component"),
        ("speed_ratio = 1.1", "speed_ratio = 0", "predicted.speed_ratio"),
        ("speed_ratio = 1.1", 'speed_ratio = "fast"', "predicted.speed_ratio"),
        ('reason = "because"', "", "predicted.reason"),
        ('hypothesis = "why"', 'hypothesis = "why"\nspeed = 2', "speed"),
        ('hypothesis = "why"', 'hypothesis = "why"\nkind = "miracle"', "kind"),
        ('reason = "because"', 'reason = "b"\n[preconditions]\ngpu = "h100"', "preconditions.gpu"),
        ('reason = "because"', 'reason = "b"\n[knobs]\nx = [1]', "knobs.x"),
        ("[predicted]", "[predicted", "mechanism.toml"),
    ],
)
def test_schema_errors_name_file_and_field(tmp_path: Path, old: str, new: str, field: str) -> None:
    path = folder(tmp_path, GOOD.replace(old, new))
    with pytest.raises(MechanismError) as caught:
        load_mechanism(path)
    assert str(path / "mechanism.toml") in str(caught.value)
    assert field in str(caught.value)


def test_missing_file_missing_patch_and_no_change(tmp_path: Path) -> None:
    with pytest.raises(MechanismError, match="does not exist"):
        load_mechanism(tmp_path / "nowhere")
    path = folder(tmp_path, GOOD, patch=None)
    with pytest.raises(MechanismError, match=r"change\.patch.*is not a file"):
        load_mechanism(path).proposal(path, "memory")
    bare = load_mechanism(path).model_copy(update={"patch": None})
    with pytest.raises(MechanismError, match="neither patch nor knobs"):
        bare.proposal(path, "memory")
    (path / "change.patch").write_text("")
    with pytest.raises(MechanismError, match="neither patch nor knobs"):
        load_mechanism(path).proposal(path, "memory")


@pytest.mark.parametrize(
    ("needs", "compiler", "unmet"),
    [
        ({}, False, None),
        ({"engine": ["native"], "drafter": ["ngram"], "hardware": ["cpu"]}, False, None),
        ({"engine": ["sglang"]}, True, "engine is native, needs sglang"),
        ({"drafter": ["dflash", "dspark"]}, True, "drafter is ngram, needs dflash or dspark"),
        ({"hardware": ["h100", "h200"]}, True, "hardware is cpu, needs h100 or h200"),
        ({"max_concurrency": 1}, False, None),
        ({"max_concurrency": 0}, False, "concurrency 1 above 0"),
        ({"compiler": True}, True, None),
        ({"compiler": True}, False, "needs a C++ compiler (g++) on this machine"),
    ],
)
def test_preconditions(needs: dict[str, Any], compiler: bool, unmet: str | None) -> None:
    assert Preconditions.model_validate(needs).unmet(SETTING, has_compiler=compiler) == unmet


@pytest.fixture(scope="module")
def stock(tmp_path_factory: pytest.TempPathFactory) -> tuple[TreeStore, str]:
    store = TreeStore(tmp_path_factory.mktemp("trees"))
    return store, store.import_stock(engine_driver("native").stock_source(), "native").commit


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: f"{path.parts[-3]}/{path.parts[-2]}")
def test_every_shipped_mechanism_applies_to_stock(path: Path, stock: tuple[TreeStore, str]) -> None:
    mechanism = load_mechanism(path.parent)
    planted = path.is_relative_to(CANARIES)
    assert planted == mechanism.kind.startswith("canary")
    assert planted or mechanism.name == path.parent.name
    proposal = mechanism.proposal(path.parent, "memory")
    if mechanism.preconditions.engine in ([], ["native"]):
        applied(*stock, proposal)


def test_names_are_unique_over_catalogue_and_canaries() -> None:
    found = [load_mechanism(path.parent).name for path in SHIPPED]
    assert len(found) == len(set(found))
