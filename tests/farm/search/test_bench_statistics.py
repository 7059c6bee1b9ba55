"""farm.bench behind the flow's protocol, on recordings whose true ratio is built in."""

from __future__ import annotations

import json
from typing import Any

import pytest

from engines.answers import GenerationRequest
from farm.bench.errors import MeasurementError
from farm.bench.recording import Recording, Run
from farm.search.bench_statistics import BenchStatistics

REQUESTS = tuple(GenerationRequest(f"p{i}", (1, 2, i), 8, family="f") for i in range(6))
STEPS = 24


def run(arm: str, prompt: int, step_s: float, tokens_a_step: int = 1) -> Run:
    times = tuple(0.1 + step_s * n for n in range(STEPS))
    counts = tuple(1 + tokens_a_step * n for n in range(STEPS))
    return Run(
        arm, prompt, 0, 0, tuple(range(counts[-1])), "length", STEPS, 0.1, times, times, counts
    )


def recording(launch: int = 0, **steps: float) -> dict[str, Any]:
    """One launch; `steps` maps arm to seconds a step. Launches differ a little."""
    runs = tuple(
        run(arm, prompt, seconds * (1 + 0.001 * launch * (arm != "stock")) * (1 + 0.1 * prompt))
        for prompt in range(len(REQUESTS))
        for arm, seconds in steps.items()
    )
    trees = {arm: f"tree-of-{arm}" for arm in steps}
    made = Recording("slices", REQUESTS, runs, trees, 0, 1.0).to_json()
    return json.loads(json.dumps(made))  # type: ignore[no-any-return]


def test_a_known_speed_up_is_found_and_named() -> None:
    found = BenchStatistics("mean_throughput").estimate(
        [recording(stock=0.030, candidate=0.020)], "candidate", "stock", "native-abc"
    )
    assert found.ratio.ratio == pytest.approx(1.5, rel=1e-6)
    assert found.ratio.low <= 1.5 + 1e-9 and found.ratio.high >= 1.5 - 1e-9
    assert found.ratio.baseline == "native-abc"
    assert found.step_ratio == pytest.approx(1.5) and found.tau_ratio == pytest.approx(1.0)
    assert found.mean_throughput_ratio == pytest.approx(1.5)


def test_the_placebo_sets_the_floor_and_widens_what_comes_later() -> None:
    placebo = [recording(n, stock=0.03, stock_b=0.03) for n in range(3)]
    fresh, calibrated = BenchStatistics("mean_throughput"), BenchStatistics("mean_throughput")
    interval, floor = calibrated.aa_floor(placebo, "native-x")
    assert floor == max(interval.high, 1.0)
    assert interval.low < 1.0005 and interval.high > 0.9985
    later = [recording(stock=0.03, candidate=0.02)]
    narrow = fresh.estimate(later, "candidate", "stock", "b").ratio
    wide = calibrated.estimate(later, "candidate", "stock", "b").ratio
    assert wide.low < narrow.low and wide.high > narrow.high
    assert wide.ratio == narrow.ratio


def test_two_launches_are_too_few_for_a_floor() -> None:
    placebo = [recording(n, stock=0.03, stock_b=0.03) for n in range(2)]
    with pytest.raises(MeasurementError, match="three are the least"):
        BenchStatistics("mean_throughput").aa_floor(placebo, "native-x")


def test_answers_are_every_timed_answer_as_json_without_clocks() -> None:
    both = [recording(stock=0.03, candidate=0.02), recording(stock=0.03, candidate=0.02)]
    answers = BenchStatistics("mean_throughput").answers(both, "candidate")
    assert len(answers) == 2 * len(REQUESTS)
    assert [a["request"]["id"] for a in answers[:6]] == [r.id for r in REQUESTS]
    assert all(list(a["output_ids"]) == list(range(STEPS)) for a in answers)
    assert all(a["arrivals"] == () and a["meta"] == {} for a in answers)
    json.dumps(answers)


def test_an_arm_that_was_not_measured_is_an_error_the_flow_expects() -> None:
    with pytest.raises(MeasurementError):
        BenchStatistics("mean_throughput").estimate(
            [recording(stock=0.03, candidate=0.02)], "merged", "stock", "b"
        )
