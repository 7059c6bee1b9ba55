"""The door to decisions: estimates, the A/A floor, early stops and plans."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from farm.bench.errors import MeasurementError
from farm.bench.estimate import aa_calibration, aa_floor, estimate
from farm.bench.plan import MeasurementPlan, plan_measurement
from farm.bench.recording import Recording
from farm.bench.stopping import LOSER, OUT_OF_REACH, SequentialStop
from farm.bench.study_table import render, rows_of
from farm.statistics.launch_spread import LaunchSpread
from farm.statistics.simulate import QUIET, STILL, SimulatedArm, simulate
from settings.schema import Measurement

ARM = SimulatedArm()


def _first(recording: Recording, prompts: int) -> Recording:
    return replace(recording, runs=tuple(r for r in recording.runs if r.request < prompts))


def test_an_estimate_is_tau_times_step_and_names_its_baseline() -> None:
    longer = replace(ARM, accept=(0.2, 0.3, 0.5))
    recording = simulate(longer.slower(0.2), ARM, QUIET, prompts=8).recording
    found = estimate(recording)
    assert found.ratio.ratio == pytest.approx(found.tau_ratio * found.step_ratio)
    assert found.step_ratio == pytest.approx(1 / 1.2, abs=0.05)
    assert found.accept_length["candidate"] > found.accept_length["stock"] > 1.0
    assert found.ratio.baseline == "stock-stock-tree"
    assert found.ratio.n == 8
    assert found.ratio.low < found.ratio.ratio < found.ratio.high
    assert found.mean_throughput_ratio.method.startswith("mean_throughput")
    assert estimate(recording, baseline_name="native-abc").ratio.baseline == "native-abc"
    reverse = estimate(recording, "stock", "candidate", "mean_throughput")
    forward = estimate(recording, estimator="mean_throughput")
    assert reverse.ratio.ratio == pytest.approx(1 / forward.ratio.ratio)


def test_the_placebo_gives_floor_and_launch_spread() -> None:
    noisy_launches = replace(QUIET, launch_sd=0.05)
    made = [
        simulate(ARM, ARM, noisy_launches, prompts=6, tokens=32, seed=seed).recording
        for seed in range(4)
    ]
    made = [replace(r, trees={"candidate": "same", "stock": "same"}) for r in made]
    found = aa_calibration(made)
    assert found.floor == max(found.interval.high, 1.0) > 1.0
    assert found.launch.df == 3
    assert found.launch.sd > 0.01
    assert aa_floor(made) == (found.interval, found.floor)
    with pytest.raises(MeasurementError, match="three are the least"):
        aa_calibration(made[:2])
    with pytest.raises(MeasurementError, match="are the same tree"):
        aa_calibration([replace(r, trees={"candidate": "a", "stock": "b"}) for r in made])


def test_the_floor_is_never_below_one() -> None:
    slower = [
        simulate(ARM.slower(0.2), ARM, QUIET, prompts=6, tokens=32, seed=s).recording
        for s in range(3)
    ]
    interval, floor = aa_floor(slower, arms=("candidate", "stock"))
    assert interval.high < 1.0
    assert floor == 1.0


def test_the_placebo_spread_widens_a_candidates_single_launch() -> None:
    recording = simulate(ARM, ARM, QUIET, prompts=8).recording
    narrow = estimate(recording).ratio
    wide = estimate(recording, launch=LaunchSpread.known(0.04, 2)).ratio
    assert wide.low < narrow.low
    assert wide.high > narrow.high
    assert wide.ratio == narrow.ratio


def test_what_cannot_be_accepted_stops_at_four_prompts_and_winners_never() -> None:
    slow = simulate(ARM.slower(0.5), ARM, QUIET, prompts=10).recording
    fast = simulate(ARM, ARM.slower(0.5), QUIET, prompts=10).recording
    same = simulate(ARM, ARM, QUIET, prompts=10).recording
    rule = SequentialStop()
    assert rule(_first(slow, 3)) is None
    assert (rule(_first(slow, 4)) or "").startswith(LOSER)
    assert rule(fast) is None and rule(same) is None
    high = SequentialStop(bar=1.2)
    assert (high(same) or "").startswith(OUT_OF_REACH)
    assert (high(slow) or "").startswith(LOSER)
    assert high(fast) is None
    assert rule(replace(slow, runs=tuple(r for r in slow.runs if r.arm == "stock"))) is None


def test_the_factors_have_intervals_of_their_own() -> None:
    longer = replace(ARM, accept=(0.2, 0.3, 0.5))
    found = estimate(simulate(longer, ARM, QUIET, prompts=8).recording)
    assert found.tau.low < found.tau.ratio < found.tau.high
    assert found.step.low < 1.0 < found.step.high
    # A change of the kernel alone leaves the accept length where it was: the negative control.
    kernel = estimate(simulate(ARM, ARM.slower(0.2), QUIET, prompts=8).recording)
    assert kernel.tau.low <= 1.0 <= kernel.tau.high
    assert kernel.step.low > 1.1
    strict = estimate(simulate(longer, ARM, QUIET, prompts=8).recording, confidence=0.99)
    assert strict.ratio.confidence == 0.99 and strict.ratio.low < found.ratio.low


def _measurement(**changes: object) -> Measurement:
    return Measurement.model_validate(
        {"mode": "slices", "estimator": "quiet_time", "prompts": 12, **changes}
    )


def test_plans_spend_the_time_on_prompts_first_then_on_repeats() -> None:
    plan = plan_measurement(_measurement(seconds_per_candidate=80), answer_s=1.0)
    assert (plan.prompts, plan.repeats, plan.budget_s) == (12, 3, 80)
    short = plan_measurement(_measurement(seconds_per_candidate=14), answer_s=1.0)
    assert (short.prompts, short.repeats) == (7, 1)
    least = plan_measurement(_measurement(seconds_per_candidate=1), answer_s=1.0)
    assert least.prompts == 4
    many = _measurement(seconds_per_candidate=80, estimator="position_minimum")
    repeats = plan_measurement(many, answer_s=1.0)
    assert (repeats.prompts, repeats.repeats) == (8, 5)
    few = plan_measurement(_measurement(), answer_s=0.1, arms=3, available_prompts=5, seconds=30)
    assert (few.prompts, few.repeats) == (5, 20)


def test_plans_that_make_no_sense_are_refused() -> None:
    with pytest.raises(MeasurementError, match="slice_s"):
        MeasurementPlan(slice_s=(0.3, 0.1))
    with pytest.raises(MeasurementError, match="at least 1"):
        MeasurementPlan(repeats=0)
    assert MeasurementPlan(stop=SequentialStop()).to_json()["mode"] == "slices"


def test_the_study_table_holds_every_estimator_and_the_truth() -> None:
    uniform = replace(ARM, skip=0.0)
    made = simulate(uniform.slower(0.1), uniform, STILL, prompts=4, tokens=24).recording
    runs = tuple(replace(r, arm="slowed" if r.arm == "candidate" else "stock") for r in made.runs)
    rows = rows_of(replace(made, runs=runs, trees={"stock": "a", "slowed": "b"}), 0.1)
    assert {row.estimator for row in rows} >= {"mean_throughput", "slice_median"}
    for row in rows:
        assert row.truth == pytest.approx(math.log(1.1))
        assert row.log_ratio == pytest.approx(row.truth, abs=2e-3)
        assert row.decided == "faster"
    assert render(rows).count("\n") == len(rows) + 1


def test_an_arm_that_remembers_prompts_is_noted() -> None:
    honest = simulate(ARM, ARM, QUIET, prompts=6, repeats=2).recording
    assert estimate(honest).notes == ()
    cheating = replace(
        honest,
        runs=tuple(
            replace(run, running_s=tuple(t / 3 for t in run.running_s))
            if run.arm == "candidate" and run.repeat > 0
            else run
            for run in honest.runs
        ),
    )
    assert "does it remember answers" in estimate(cheating).notes[0]
    assert estimate(cheating, "stock", "candidate").notes == ()
