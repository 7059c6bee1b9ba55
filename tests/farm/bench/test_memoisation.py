"""The gain on repeats on simulated machines whose engines do, or do not, remember."""

from __future__ import annotations

from dataclasses import replace

import pytest

from farm.bench.memoisation import first_answers, memoisation
from farm.bench.recording import Recording, Run, merge_launches
from farm.statistics.simulate import NOISY, QUIET, STILL, Noise, SimulatedArm, simulate

ARM = SimulatedArm()


def recorded(noise: Noise, seed: int, gain: float = 1.0, repeats: int = 2) -> Recording:
    """Candidate and stock alike, but the candidate's repeats take 1 / `gain` of the time."""
    found = simulate(ARM, ARM, noise, prompts=10, repeats=repeats, tokens=64, seed=seed).recording

    def run(one: Run) -> Run:
        if one.arm != "candidate" or one.repeat == 0:
            return one
        start = one.running_s[0]
        return replace(one, running_s=tuple(start + (t - start) / gain for t in one.running_s))

    return replace(found, runs=tuple(map(run, found.runs)))


@pytest.mark.parametrize("gain", [1.5, 3.0])
def test_a_gain_on_repeats_is_measured_and_refused(gain: float) -> None:
    found = memoisation(recorded(STILL, 1, gain), "candidate", "stock")
    assert found is not None
    assert found.gain == pytest.approx(gain, rel=0.05)
    assert found.remembers and found.excluded and found.prompts == 10


def test_honest_engines_are_not_accused() -> None:
    """Forty measurements a machine; the interval may exclude 1 now and then, never by 5 %."""
    for noise in (QUIET, NOISY):
        found = [memoisation(recorded(noise, seed), "candidate", "stock") for seed in range(40)]
        assert [m for m in found if m is None or m.remembers] == []
        assert sum(m.excluded for m in found if m is not None) <= 6


def test_nothing_can_be_said_without_repeats() -> None:
    once = recorded(QUIET, 1, repeats=1)
    assert memoisation(once, "candidate", "stock") is None
    assert memoisation(once, "candidate", "nobody") is None
    blocks = replace(once, runs=tuple(replace(run, block=0) for run in once.runs))
    assert memoisation(blocks, "candidate", "stock") is None


def test_first_answers_are_one_a_prompt_launch_and_arm() -> None:
    both = merge_launches([recorded(QUIET, 1), recorded(QUIET, 2, repeats=3)])
    first = first_answers(both)
    places = [(r.arm, r.launch, r.request) for r in first.runs]
    assert len(places) == len(set(places)) == 2 * 2 * 10
    assert {run.repeat for run in first.runs} == {0}
    assert first.requests == both.requests
    assert first_answers(first) == first
