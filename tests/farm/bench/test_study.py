"""A study's recordings can be evaluated again, and a bad file is named."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from farm.bench.study import PLANS, main
from farm.statistics.simulate import QUIET, SimulatedArm, simulate


def test_a_kept_study_is_evaluated_anew(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:  # type: ignore[type-arg]
    made = simulate(SimulatedArm().slower(0.5), SimulatedArm(), QUIET, prompts=6).recording
    names = {"candidate": "slowed", "stock": "stock"}
    made = replace(
        made,
        runs=tuple(replace(run, arm=names[run.arm]) for run in made.runs),
        trees={"stock": "a", "slowed": "b"},
    )
    entry = {"plan": "slices", "planted": 0.5, "recording": made.to_json()}
    file = tmp_path / "study.json"
    file.write_text(json.dumps({"recordings": [entry]}))
    again = tmp_path / "again.json"
    assert main(["--again", str(file), "--out", str(again)]) == 0
    table = capsys.readouterr().out
    assert "| 50% | slices | slice_median |" in table
    rows = {row["estimator"]: row for row in json.loads(again.read_text())["rows"]}
    assert rows["slice_median"]["decided"] == "faster"
    assert main(["--again", str(again)]) == 0


def test_a_bad_study_file_is_named(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:  # type: ignore[type-arg]
    file = tmp_path / "study.json"
    file.write_text('{"recordings": [{"plan": "slices"}]}')
    assert main(["--again", str(file)]) == 2
    assert str(file) in capsys.readouterr().err


def test_every_plan_of_the_study_can_be_run() -> None:
    assert all(plan.mode in ("slices", "abba") for plan in PLANS.values())
