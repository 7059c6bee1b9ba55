"""Recordings: running time, round trip, and errors that name the field."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from engines.answers import Answer
from farm.bench.errors import MeasurementError
from farm.bench.recording import (
    PREFILL_TURN,
    Recording,
    merge_launches,
    recording_from_json,
    run_from_answer,
)
from farm.bench.running_clock import running_seconds, slice_of
from farm.bench.steps import accept_length, decode_steps, step_claims
from farm.statistics.simulate import QUIET, SimulatedArm, simulate
from tests.farm.bench.fakes import request


def _answer(*arrivals: tuple[float, int], sent: float = 10.0, steps: int | None = None) -> Answer:
    ids = tuple(range(arrivals[-1][1])) if arrivals else ()
    return Answer(request("p"), ids, "stop", sent, arrivals, steps)


def test_running_seconds_against_summing_up_overlaps() -> None:
    rng = random.Random(1)
    edges = sorted(rng.uniform(0, 10) for _ in range(20))
    intervals = list(zip(edges[::2], edges[1::2], strict=True))
    times = [rng.uniform(-1, 12) for _ in range(50)]
    expected = [sum(max(0.0, min(t, e) - s) for s, e in intervals if t > s) for t in times]
    assert running_seconds(times, intervals).tolist() == pytest.approx(expected)
    assert slice_of([0.5, 1.5, 3.0], [1.0, 2.0]).tolist() == [-1, 0, 1]


def test_a_pause_inside_a_step_is_subtracted_and_a_late_event_belongs_to_the_slice_before() -> None:
    spans = [(PREFILL_TURN, 10.0, 10.5), (0, 11.0, 12.0), (1, 15.0, 16.0)]
    # 12.1 is inside the pause: it was sent before 12.0.
    answer = _answer((10.4, 1), (11.4, 2), (12.1, 4), (15.2, 5))
    run = run_from_answer(answer, arm="stock", request=0, repeat=0, spans=spans)
    assert run.running_s == pytest.approx((0.4, 0.9, 1.5, 1.7))
    assert run.ttft_s == pytest.approx(0.4)
    steps = decode_steps(run)
    assert steps.gap_s.tolist() == pytest.approx([0.5, 0.6, 0.2])
    assert steps.tokens.tolist() == [1, 2, 1]
    assert steps.turn.tolist() == [0, 0, 1]
    assert steps.clean.tolist() == [False, True, False]
    assert steps.seconds == pytest.approx(1.3)
    assert steps.total_tokens == 4


def test_events_without_tokens_are_no_steps() -> None:
    run = run_from_answer(
        _answer((10.1, 1), (10.2, 3), (10.3, 3)), arm="stock", request=0, repeat=0
    )
    steps = decode_steps(run)
    assert steps.count == 1
    assert steps.seconds == pytest.approx(0.1)
    assert accept_length([run]) == 2.0


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (_answer(), "no arrivals"),
        (_answer((10.2, 1), (10.1, 2)), "go backwards"),
        (_answer((10.1, 2), (10.2, 1)), "go backwards"),
    ],
)
def test_answers_that_cannot_be_timed_are_refused(answer: Answer, message: str) -> None:
    with pytest.raises(MeasurementError, match=message):
        run_from_answer(answer, arm="stock", request=0, repeat=0)


def test_json_round_trip_keeps_everything() -> None:
    recording = simulate(SimulatedArm(), SimulatedArm(), QUIET, prompts=3, repeats=2).recording
    again = recording_from_json(json.loads(json.dumps(recording.to_json())))
    assert again == recording
    assert [a.output_ids for a in again.answers("stock")] == [
        run.output_ids for run in recording.runs if run.arm == "stock"
    ]


@pytest.mark.parametrize(
    ("damage", "field"),
    [
        (lambda d: d.pop("schema"), "schema"),
        (lambda d: d.pop("runs"), r"runs is missing"),
        (lambda d: d.pop("seed"), r"seed is missing"),
        (lambda d: d["runs"][1].pop("tokens"), r"runs\[1\].tokens"),
        (lambda d: d["runs"][0].pop("ttft_s"), r"runs\[0\].*ttft_s"),
        (lambda d: d["runs"][0].update(wall_s=[]), r"runs\[0\].*differ in length"),
        (lambda d: d["runs"][0].update(request=99), r"runs\[0\].request is out of range"),
        (lambda d: d["runs"][0].update(surprise=1), r"runs\[0\].*surprise"),
        (lambda d: d["requests"].__setitem__(0, "x"), r"requests\[0\] is no table"),
    ],
)
def test_malformed_json_names_the_field(damage: Any, field: str) -> None:
    data = json.loads(
        json.dumps(simulate(SimulatedArm(), SimulatedArm(), QUIET, prompts=2).recording.to_json())
    )
    damage(data)
    with pytest.raises(MeasurementError, match=field):
        recording_from_json(data, "f.json")


def test_merging_counts_launches_up_and_matches_prompts() -> None:
    one = simulate(SimulatedArm(), SimulatedArm(), QUIET, prompts=2, launches=2).recording
    two = simulate(SimulatedArm(), SimulatedArm(), QUIET, prompts=3).recording
    merged = merge_launches([one, two])
    assert {run.launch for run in merged.runs} == {0, 1, 2}
    assert len(merged.requests) == 3
    assert len(merged.runs) == len(one.runs) + len(two.runs)
    with pytest.raises(MeasurementError):
        merge_launches([])


def test_step_claims_that_contradict_the_events_are_noted() -> None:
    def recorded(steps: int) -> Recording:
        run = run_from_answer(
            _answer((10.1, 1), (10.2, 3), (10.3, 5), (10.4, 6), steps=steps),
            arm="stock",
            request=0,
            repeat=0,
        )
        return Recording("abba", (request("p"),), (run,), {"stock": "t"}, 0, 1.0)

    assert step_claims(recorded(3)) == []
    assert step_claims(recorded(4)) == []
    assert "3 decode events but 6 verify steps" in step_claims(recorded(6))[0]
