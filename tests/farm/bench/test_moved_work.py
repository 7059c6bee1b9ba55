"""Work moved before the first token, on simulated machines."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from farm.bench.moved_work import moved_work
from farm.bench.recording import Recording, Run
from farm.statistics.simulate import NOISY, QUIET, STILL, Noise, SimulatedArm, simulate

ARM = SimulatedArm()


def recorded(noise: Noise, seed: int, change: Callable[[Run], Run]) -> Recording:
    found = simulate(ARM, ARM, noise, prompts=8, tokens=64, seed=seed).recording
    return replace(found, runs=tuple(change(r) if r.arm == "candidate" else r for r in found.runs))


def shifted(share: float, hidden: float) -> Callable[[Run], Run]:
    """Decoding takes `share` less; `hidden` of what that saves is spent before the first token."""

    def change(run: Run) -> Run:
        start, end = run.running_s[0], run.running_s[-1]
        late = (end - start) * share * hidden
        times = tuple(start + late + (t - start) * (1 - share) for t in run.running_s)
        return replace(run, running_s=times, ttft_s=times[0])

    return change


def test_a_third_of_the_answer_computed_beforehand_is_found() -> None:
    found = moved_work(recorded(STILL, 1, shifted(1 / 3, 1.0)), "candidate", "stock")
    assert found is not None and found.moved
    assert found.later_s == pytest.approx(found.saved_s, rel=0.05)
    assert found.low > 1.25
    for noise in (QUIET, NOISY):
        for seed in range(10):
            again = moved_work(recorded(noise, seed, shifted(1 / 3, 1.0)), "candidate", "stock")
            assert again is not None and again.moved


def test_an_honest_speed_up_and_a_somewhat_slower_prefill_pass() -> None:
    for noise in (QUIET, NOISY):
        for seed in range(20):
            for change in (shifted(0.0, 0.0), shifted(0.2, 0.0), shifted(0.2, 0.2)):
                found = moved_work(recorded(noise, seed, change), "candidate", "stock")
                assert found is not None and not found.moved


def test_late_first_tokens_of_a_decoding_that_gains_nothing_pass() -> None:
    # As the control that renames a function, on a tiny model beside other work.
    late = moved_work(recorded(STILL, 1, shifted(0.01, 60.0)), "candidate", "stock")
    assert late is not None and late.low > 1.25
    assert late.later_s > late.saved_s > 0.0 and late.saved_s < 0.02 * late.decoding_s
    assert not late.moved
    gains = moved_work(recorded(STILL, 1, shifted(0.03, 20.0)), "candidate", "stock")
    assert gains is not None and gains.saved_s > 0.02 * gains.decoding_s and gains.moved


def test_a_slow_candidate_has_moved_nothing() -> None:
    found = moved_work(recorded(STILL, 1, shifted(-0.1, -5.0)), "candidate", "stock")
    assert found is not None
    assert found.saved_s < 0 < found.later_s and not found.moved


def test_one_prompt_or_concurrent_requests_show_nothing() -> None:
    whole = recorded(STILL, 1, shifted(1 / 3, 1.0))
    one = replace(whole, runs=tuple(r for r in whole.runs if r.request == 0))
    assert moved_work(one, "candidate", "stock") is None
    blocks = replace(whole, runs=tuple(replace(r, block=0) for r in whole.runs))
    assert moved_work(blocks, "candidate", "stock") is None
    assert moved_work(whole, "candidate", "nobody") is None
