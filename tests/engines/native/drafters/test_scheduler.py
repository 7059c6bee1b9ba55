"""Algorithm 1 against every combination of lengths, and the property that makes it lossless."""

from __future__ import annotations

import itertools
import math
import random

import pytest

from native_engine.drafters.scheduler import StepRate, threshold, throughput
from native_engine.errors import ConfigError


def draw(rng: random.Random, requests: int, longest: int) -> list[list[float]]:
    return [
        [rng.choice([rng.random(), 1.0, 0.97]) for _ in range(rng.randint(0, longest))]
        for _ in range(requests)
    ]


def value(confidences: list[list[float]], lengths: tuple[int, ...], rate: StepRate) -> float:
    """Expected tokens a second when each request verifies this many drafts."""
    tau = sum(
        1 + sum(math.prod(steps[: j + 1]) for j in range(n))
        for steps, n in zip(confidences, lengths, strict=True)
    )
    return tau * rate(len(lengths) + sum(lengths))


def test_it_is_the_best_combination_where_step_time_grows_evenly() -> None:
    rng = random.Random(1)
    for _ in range(150):
        confidences = draw(rng, rng.randint(1, 4), 4)
        base, slope = rng.uniform(1, 20), rng.uniform(0.05, 3)
        sizes = [1, 64]
        rate = StepRate(sizes, [1 / (base + slope * n) for n in sizes])
        choices = itertools.product(*(range(len(steps) + 1) for steps in confidences))
        best = max(value(confidences, lengths, rate) for lengths in choices)
        found = tuple(throughput(rate)(confidences))
        assert value(confidences, found, rate) == pytest.approx(best, rel=1e-9)


def test_it_stops_at_the_first_drop_of_any_profile() -> None:
    """Said again: the ranked list, and the longest rising run of its throughputs."""
    rng = random.Random(2)
    for _ in range(300):
        confidences = draw(rng, rng.randint(1, 5), 5)
        sizes = list(range(1, 31))
        rate = StepRate(sizes, [rng.uniform(1, 2) / (1 + 0.1 * n) for n in sizes])
        ranked = [
            (math.prod(steps[: j + 1]), -j, -request)
            for request, steps in enumerate(confidences)
            for j in range(len(steps))
        ]
        ranked.sort(reverse=True)
        expected = [0] * len(confidences)
        tau, rows = len(confidences), len(confidences)
        last = tau * rate(rows)
        for survival, _, negative in ranked:
            tau, rows = tau + survival, rows + 1
            if tau * rate(rows) <= last:
                break
            last = tau * rate(rows)
            expected[-negative] += 1
        assert throughput(rate)(confidences) == expected


@pytest.mark.parametrize("rule", ["threshold", "throughput"])
def test_admission_never_depends_on_later_confidences(rule: str) -> None:
    rng = random.Random(3)
    sizes = list(range(1, 41))
    for _ in range(400):
        rate = StepRate(sizes, [rng.uniform(1, 2) / (1 + 0.05 * n) for n in sizes])
        schedule = throughput(rate) if rule == "throughput" else threshold(0.4)
        confidences = draw(rng, rng.randint(1, 5), 6)
        before = schedule(confidences)
        request = rng.randrange(len(confidences))
        if not confidences[request]:
            continue
        at = rng.randrange(len(confidences[request]))
        changed = [list(steps) for steps in confidences]
        tail = [rng.random() for _ in range(rng.randint(0, 4))]
        changed[request] = changed[request][: at + 1] + tail
        after = schedule(changed)
        for j in range(at + 1):
            assert (before[request] > j) == (after[request] > j)


def test_a_light_batch_verifies_more_than_a_full_one() -> None:
    rate = StepRate([1, 8, 16, 64], [100, 98, 80, 25])
    request = [0.95, 0.9, 0.8, 0.6, 0.5, 0.4, 0.3]
    alone, crowded = throughput(rate)([request])[0], throughput(rate)([request] * 12)
    assert alone == 7
    assert max(crowded) < alone and sum(crowded) > 0


def test_the_profile_is_interpolated_in_time_and_ends() -> None:
    rate = StepRate([2, 4], [10.0, 5.0])
    assert rate(1) == rate(2) == pytest.approx(10)
    assert rate(3) == pytest.approx(1 / 0.15)
    assert rate(4) == pytest.approx(5) and rate(5) == 0
    assert throughput(rate)([[1.0] * 9]) == [1]
    for tokens, rates in (([], []), ([1], []), ([2, 1], [1.0, 1.0]), ([1], [0.0])):
        with pytest.raises(ConfigError, match="batch_tokens"):
            StepRate(tokens, rates)


def test_the_threshold_cuts_at_the_first_doubt() -> None:
    assert threshold(0.5)([[0.9, 0.4, 0.9], [], [0.5, 0.6], [0.1]]) == [1, 0, 2, 0]
