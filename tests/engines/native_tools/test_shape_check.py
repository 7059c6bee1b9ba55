"""The shape check on small configurations: what it says of a right target and of a bad folder."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from native_tools import shape_check
from tests.engines.native.batching.test_parallel_drafters import DRAFTERS, drafter_folder
from tests.engines.native.targets import tiny_qwen35
from tests.engines.native.tiny import make_folder


@pytest.mark.parametrize("kind", ["llama", "hybrid"])
def test_steps_of_a_right_target_agree(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hidden, layers = (96, 3) if kind == "llama" else (48, 4)
    make_folder(tmp_path) if kind == "llama" else tiny_qwen35.make_folder(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    drafter = drafter_folder(tmp_path / "drafter", DRAFTERS["dflash"], hidden, layers)
    flags = ["--device", "cpu", "--dtype", "fp32", "--batch", "2", "--drafter", str(drafter)]
    assert shape_check.main([str(tmp_path), *flags]) == 0
    found = json.loads(capsys.readouterr().out)
    for name, rows in (("verify_against_steps", 8), ("after_rejection", 4)):
        assert found[name]["rows"] == found[name]["same_choice"] == rows
        assert found[name]["largest_difference"] < 1e-4 * max(1, found[name]["logit_scale"])
    assert found["draft_tokens"] == 4 and found["step_ms_c2_rows8"] > 0
    assert shape_check.main([str(tmp_path / "nowhere"), *flags]) == 2
    assert "config.json" in capsys.readouterr().err
