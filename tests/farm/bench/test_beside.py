"""AR beside transformers on real engines over the tiny setting, and what goes wrong with it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from farm.bench import beside
from farm.bench.recording import recording_from_json
from farm.campaign.jobs import MeasureJob, MeasureOutcome

TINY = "tests/data/settings/tiny-fp32"
Captured = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def _own_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPECFARM_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("SPECFARM_TIMING_LOCK", str(tmp_path / "lock"))


def test_ar_and_the_reference_answer_alike_and_are_compared(
    tmp_path: Path, capsys: Captured
) -> None:
    out = tmp_path / "beside.json"
    arguments = [TINY, "--seconds", "2", "--launches", "2", "--out", str(out)]
    assert beside.main(arguments) == 0
    printed = capsys.readouterr()
    data = json.loads(out.read_text())
    recordings = [recording_from_json(item) for item in data["recordings"]]
    assert len(recordings) == 2
    for recording in recordings:
        assert set(recording.arms()) == {"ar", "reference"}
        ours, theirs = recording.answers("ar"), recording.answers("reference")
        assert [a.output_ids for a in ours] == [a.output_ids for a in theirs]
        assert len(ours) >= 4
        # Both committed one token a step: neither speculates.
        steps = [run.verify_steps for run in recording.runs if run.arm == "ar"]
        tokens = [len(run.output_ids) for run in recording.runs if run.arm == "ar"]
        assert steps == [count - 1 for count in tokens]
    ratio = data["measured"]["ratio"]
    assert 0 < ratio["low"] <= ratio["ratio"] <= ratio["high"]
    assert ratio["baseline"].startswith("transformers-")
    assert (
        data["agreement"]["identical"]
        == data["agreement"]["pairs"]
        == sum(len(recording.answers("ar")) for recording in recordings)
    )
    assert data["machine"]["logical_cpus"] >= 1
    first = printed.out.splitlines()[0]
    assert first.startswith("tiny-fp32 (fp32, 1 thread(s)): AR (native-")
    assert f"x{ratio['ratio']:.3f}  95 % [{ratio['low']:.3f}, {ratio['high']:.3f}]" in first
    assert "launch 2 of 2" in printed.err


def test_an_engine_that_fails_is_named(monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    asked: list[MeasureJob] = []

    def failing(job: MeasureJob, store: Any) -> MeasureOutcome:
        asked.append(job)
        return MeasureOutcome("crashed", "reference", "out of luck")

    monkeypatch.setattr(beside, "run_measure_job", failing)
    assert beside.main([TINY, "--seconds", "90", "--launches", "3"]) == 2
    assert "launch 0: reference: crashed: out of luck" in capsys.readouterr().err
    (job,) = asked
    assert job.seconds == 30.0
    assert [(arm.label, arm.arm, arm.engine) for arm in job.arms] == [
        ("ar", "ar", "native"),
        ("reference", "ar", "transformers"),
    ]
    assert not job.stop_losers and job.exact_setting is None


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "required: setting"),
        (["nosuch"], "no setting is named 'nosuch'"),
        ([TINY, "--seconds", "0"], "--seconds: 0 is not 1 to 86400"),
        ([TINY, "--seconds", "nan"], "--seconds: nan is not 1 to 86400"),
        ([TINY, "--launches", "0"], "--launches: 0 is not positive"),
        ([TINY, "--out", "/proc/none/x.json"], "--out: /proc/none/x.json cannot be written"),
    ],
)
def test_mistakes_are_one_line(arguments: list[str], said: str, capsys: Captured) -> None:
    try:
        code = beside.main(arguments)
    except SystemExit as end:
        code = int(str(end.code))
    assert code == 2
    error = capsys.readouterr().err
    assert said in error and error.count("\n") == 1
