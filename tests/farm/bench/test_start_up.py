"""Start-up of a real server on random weights, and what a server that does not come up says."""

from __future__ import annotations

import json
from pathlib import Path

import psutil
import pytest

from farm.bench.start_up import main

MODEL = Path(__file__).resolve().parents[2] / "data/settings/tiny/model"


def children() -> set[int]:
    return {child.pid for child in psutil.Process().children(recursive=True)}


def test_one_row_a_folder_and_nothing_left(capsys: pytest.CaptureFixture[str]) -> None:
    before = children()
    assert main([str(MODEL), "--device", "cpu", "--slots", "2", "--tokens", "256"]) == 0
    row = json.loads(capsys.readouterr().out)
    assert (row["slots"], row["answered_tokens"], row["device_gb"]) == (2, 32, None)
    assert 0 < row["first_answers_s"] < row["start_s"] < 60 and row["process_gb"] > 0.1
    assert children() <= before


def test_a_server_that_does_not_come_up_is_named_with_its_log(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = children()
    assert main([str(tmp_path), "--device", "cpu"]) == 1
    said = capsys.readouterr().err
    assert tmp_path.name in said and "config.json" in said
    assert children() <= before
