"""Limits, gaps and bounds on made-up numbers; the command on a tiny setting."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from farm.cost_model.gaps import Limits, cost_model
from farm.cost_model.measured import of_report, stream_bytes_per_s
from farm.cost_model.traffic import Traffic
from settings.paths import checkout_root
from tests.engines.native.drafters import synthetic
from tests.farm.cli.conftest import Cli, cli  # noqa: F401

TINY = checkout_root() / "tests/data/settings/tiny"
LIMITS = Limits(1e9, 1e12, "made up")


def test_gaps_come_largest_first_with_their_bounds() -> None:
    traffic = [Traffic("down", 2e6, 1e6), Traffic("draft", 1e6, 9e9), Traffic("norms", 1e3)]
    measured = {"down": 5.0, "draft": 10.0, "norms": 0.0005, "host": 2.0}
    model = cost_model(traffic, LIMITS, measured)
    assert [gap.component for gap in model.gaps] == ["down", "host", "draft", "norms"]
    down, host, draft, norms = model.gaps
    assert (down.limit_ms, down.gap_ms) == (2.0, 3.0)
    assert draft.limit_ms == 9.0  # arithmetic, not memory, is what binds there
    assert (host.limit_ms, host.gap_ms) == (0.0, 2.0) and norms.gap_ms == 0.0
    assert model.measured_ms == pytest.approx(17.0005) and model.limit_ms == pytest.approx(11.001)
    assert model.speed_up(down) == pytest.approx(17.0005 / 14.0005)
    assert model.share(draft) == pytest.approx(10 / 17.0005)


def test_without_measurement_limits_alone_are_told() -> None:
    model = cost_model([Traffic("a", 1e6), Traffic("b", 3e6)], LIMITS)
    assert [gap.component for gap in model.gaps] == ["b", "a"] and model.measured_ms is None
    assert model.share(model.gaps[0]) is model.speed_up(model.gaps[0]) is None


def test_the_widest_steps_times_and_the_drafters() -> None:
    report = {
        "1_rows": {"qkv": 1.0, "total": 9.0},
        "16_rows": {"qkv": 2.0, "total": 9.0},
        "8_rows": {"qkv": 1.5, "total": 9.0},
        "draft": {"context": 0.5, "draft": 3.0, "draft_head": 4.0, "selector": 0.2, "total": 8.0},
    }
    assert of_report(report) == {"qkv": 2.0, "draft": 7.5, "selector": 0.2}
    del report["draft"]
    assert of_report(report) == {"qkv": 2.0}


def test_the_stream_is_a_plausible_rate() -> None:
    assert 1e8 < stream_bytes_per_s(1, repeats=1) < 2e11


def drafted(folder: Path) -> Path:
    """The tiny setting with a random DFlash2 drafter of a local folder."""
    head = synthetic.DFLASH2["dflash_config"] | {"target_layer_ids": [0, 1], "mask_token_id": 3}
    raw = synthetic.DFLASH2 | {"hidden_size": 64, "vocab_size": 512, "num_target_layers": 2}
    synthetic.write_checkpoint(folder / "drafter", raw | {"dflash_config": head})
    text = (TINY / "setting.toml").read_text()
    text = text.replace('exact_twin = "tiny-fp32"\n', "").replace(
        "../tiny/model", str(TINY / "model")
    )
    table = f'[drafter.checkpoint]\nsource = "local"\npath = "{folder}/drafter"\nlicence = "x"\n'
    text = text.replace('kind = "ngram"\n', f'kind = "dflash2"\ndraft_tokens = 4\n\n{table}')
    (folder / "tiny").mkdir()
    (folder / "tiny/setting.toml").write_text(text)
    return folder / "tiny"


def test_the_command_measures_target_and_drafter(cli: Cli, tmp_path: Path) -> None:  # noqa: F811
    setting = str(drafted(tmp_path))
    ran = cli("gaps", setting, "--context", "60", "--json")
    rows = {row["component"]: row for row in ran.lines()}
    assert ran.code == 0 and "measured here" in rows["step"]["limits"]
    for component in ("draft", "selector", "qkv", "lm_head", "attention"):
        row = rows[component]
        assert 0 < row["limit_ms"] < row["measured_ms"] and row["speed_up"] > 1
        assert row["gap_ms"] == pytest.approx(row["measured_ms"] - row["limit_ms"])
    parts = [row for name, row in rows.items() if name != "step"]
    assert sum(row["share"] for row in parts) == pytest.approx(1.0)
    on_gpu = cli("gaps", setting, "--device", "h200")
    assert on_gpu.code == 0 and "the datasheet's; nothing measured" in on_gpu.out
    assert re.search(r"draft +│ +0\.\d │", on_gpu.out)


def test_what_has_no_components_is_refused(cli: Cli, tmp_path: Path) -> None:  # noqa: F811
    ran = cli("gaps", str(TINY), "--device", "h300")
    assert ran.code == 2 and "h200" in ran.err
    text = (TINY / "setting.toml").read_text().replace('name = "native"', 'name = "sglang"')
    text = text.replace('exact_twin = "tiny-fp32"\n', "")
    (tmp_path / "tiny").mkdir()
    (tmp_path / "tiny/setting.toml").write_text(text)
    ran = cli("gaps", str(tmp_path / "tiny"))
    assert ran.code == 2 and "served by sglang" in ran.err
