"""Estimators against hand-made runs and against simulated machines whose truth is known."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from engines.answers import Answer
from farm.bench.errors import MeasurementError
from farm.bench.estimators import ESTIMATORS, get_estimator
from farm.bench.estimators.cells import cells_of
from farm.bench.recording import Recording, run_from_answer
from farm.statistics.ratio_interval import log_interval
from farm.statistics.simulate import NOISY, QUIET, STILL, SimulatedArm, simulate
from tests.farm.bench.fakes import request

ARM = SimulatedArm()


def _by_hand(runs: dict[str, list[list[tuple[float, int]]]]) -> Recording:
    """arm -> repeats -> (gap, tokens of the step) after a first token at 1 s; one prompt."""
    made = []
    for arm, repeats in runs.items():
        for repeat, steps in enumerate(repeats):
            at, count, arrivals = 1.0, 1, [(1.0, 1)]
            for gap, tokens in steps:
                at, count = at + gap, count + tokens
                arrivals.append((at, count))
            answer = Answer(request("p"), tuple(range(count)), "stop", 0.0, tuple(arrivals))
            made.append(run_from_answer(answer, arm=arm, request=0, repeat=repeat))
    return Recording("abba", (request("p"),), tuple(made), {arm: arm for arm in runs}, 0, 1.0)


def _ratio(recording: Recording, name: str) -> float:
    statistic = get_estimator(name)(cells_of(recording, "candidate", "stock"))
    found = statistic.evaluate(statistic.present.astype(float))
    assert found.ratio == pytest.approx(found.tau + found.step)
    return math.exp(found.ratio)


def test_mean_throughput_by_hand() -> None:
    recording = _by_hand(
        {
            "candidate": [[(0.1, 2), (0.1, 2)], [(0.1, 2), (0.3, 2)]],  # 8 tokens in 0.6 s
            "stock": [[(0.2, 1)] * 4],  # 4 tokens in 0.8 s
        }
    )
    assert _ratio(recording, "mean_throughput") == pytest.approx((8 / 0.6) / (4 / 0.8))


def test_position_minimum_by_hand() -> None:
    recording = _by_hand(
        {
            # Minima 0.1 and 0.2; the third repeat took other steps and is left out.
            "candidate": [[(0.1, 2), (0.9, 1)], [(0.5, 2), (0.2, 1)], [(0.01, 1), (0.01, 2)]],
            "stock": [[(0.3, 1), (0.3, 2)], [(0.4, 1), (0.2, 2)]],  # minima 0.3 and 0.2
        }
    )
    assert _ratio(recording, "position_minimum") == pytest.approx((3 / 0.3) / (3 / 0.5))


def test_slice_median_without_slices_is_the_median_over_repeats() -> None:
    recording = _by_hand(
        {
            "candidate": [[(0.1, 1)], [(0.1, 1)], [(5.0, 1)]],
            "stock": [[(0.2, 1)], [(0.3, 1)], [(0.2, 1)]],
        }
    )
    assert _ratio(recording, "slice_median") == pytest.approx(2.0)


def test_step_kinds_weigh_quantiles_by_counts() -> None:
    fast, slow = [(0.1, 1), (0.2, 2)], [(0.2, 1), (0.3, 2)]
    recording = _by_hand({"candidate": [fast * 40], "stock": [slow * 40]})
    assert _ratio(recording, "step_kind_quantile") == pytest.approx(0.5 / 0.3)


@pytest.mark.parametrize("name", sorted(set(ESTIMATORS) - {"block_throughput"}))
@pytest.mark.parametrize("mode", ["slices", "abba"])
def test_a_still_machine_shows_the_truth(name: str, mode: str) -> None:
    uniform = replace(ARM, skip=0.0)
    made = simulate(uniform.slower(0.07), uniform, STILL, prompts=6, repeats=2, mode=mode, seed=3)
    assert made.truth == pytest.approx(-math.log(1.07))
    assert math.log(_ratio(made.recording, name)) == pytest.approx(made.truth, abs=2e-3)


@pytest.mark.parametrize("name", sorted(set(ESTIMATORS) - {"block_throughput"}))
def test_longer_acceptance_is_counted_not_timed(name: str) -> None:
    longer = replace(ARM, accept=(0.2, 0.3, 0.5), skip=0.0)
    made = simulate(longer, replace(ARM, skip=0.0), STILL, prompts=6, repeats=2, tokens=120)
    statistic = get_estimator(name)(cells_of(made.recording, "candidate", "stock"))
    found = statistic.evaluate(statistic.present.astype(float))
    assert found.tau == pytest.approx(found.ratio, abs=0.02)
    assert found.ratio == pytest.approx(made.truth, abs=0.02)


@pytest.mark.parametrize("name", ["slice_median", "quiet_time"])
def test_cheap_steps_in_the_mix_do_not_fool_the_default(name: str) -> None:
    mixed = replace(ARM, skip=0.8, skip_cost=0.6)
    errors = {"default": 0.0, "step_kind_quantile": 0.0}
    for seed in range(4):
        made = simulate(mixed, ARM, QUIET, prompts=12, repeats=2, seed=seed)
        errors["default"] += math.log(_ratio(made.recording, name)) - made.truth
        kinds = math.log(_ratio(made.recording, "step_kind_quantile"))
        errors["step_kind_quantile"] += kinds - made.truth
    assert abs(errors["default"] / 4) < 0.02
    # The known weakness that keeps the pooled quantile from being the default.
    assert errors["step_kind_quantile"] / 4 > 0.03


@pytest.mark.parametrize(("noise", "least_decided"), [(QUIET, 11), (NOISY, 8)])
def test_default_covers_the_truth_and_is_seldom_wrong(noise, least_decided: int) -> None:  # type: ignore[no-untyped-def]
    covered = wrong = decided = 0
    for seed in range(12):
        placebo = simulate(ARM, ARM, noise, prompts=12, repeats=2, seed=seed)
        cells = cells_of(placebo.recording, "candidate", "stock")
        found = log_interval(get_estimator("quiet_time")(cells), resamples=200)
        covered += found.low <= 0.0 <= found.high
        wrong += found.low > 0.0
        slow = simulate(ARM.slower(0.1), ARM, noise, prompts=12, repeats=2, seed=seed)
        cells = cells_of(slow.recording, "candidate", "stock")
        decided += log_interval(get_estimator("quiet_time")(cells), resamples=200).high < 0.0
    assert covered >= 10
    assert wrong <= 1
    assert decided >= least_decided


def test_arms_and_prompts_that_cannot_be_compared_are_refused() -> None:
    recording = _by_hand({"candidate": [[]], "stock": [[(0.1, 1)]]})
    with pytest.raises(MeasurementError, match="no prompt has decode steps of both"):
        cells_of(recording, "candidate", "stock")
    with pytest.raises(MeasurementError, match="no runs of arm 'final'"):
        cells_of(recording, "final", "stock")
    with pytest.raises(MeasurementError, match=r"no estimator.*slice_median"):
        get_estimator("median")
