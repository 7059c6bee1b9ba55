"""The cost of forcing beside generating, on the tiny FP32 model (its times mean nothing)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from farm.bench.forcing_cost import forcing_cost, main
from settings.errors import SpecfarmError

TINY = str(Path(__file__).resolve().parents[2] / "data" / "settings" / "tiny-fp32")


@pytest.fixture(autouse=True)
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPECFARM_DATA", str(tmp_path))
    monkeypatch.setenv("SPECFARM_TIMING_LOCK", str(tmp_path / "timing.lock"))


def test_every_token_is_generated_and_forced(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([TINY, "--answers", "5", "--tokens", "40", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert [cost["tokens"] for cost in report["answers"]] == [40] * 5
    assert [cost["not_best"] for cost in report["answers"]] == [0] * 5, "FP32 forces clean"
    assert len({cost["prompt_tokens"] for cost in report["answers"]}) > 1
    forced = sum(cost["force_s"] for cost in report["answers"])
    generated = sum(cost["generate_s"] for cost in report["answers"])
    assert report["ratio"] == pytest.approx(forced / generated) and forced > 0


def test_answers_that_do_not_fit_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SpecfarmError, match="room for 250 tokens"):
        forcing_cost(TINY, 1, 250)
    assert main([TINY, "--tokens", "250"]) == 2
    assert "--tokens" in capsys.readouterr().err
