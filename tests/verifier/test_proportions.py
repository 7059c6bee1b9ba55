import math

import numpy as np
import pytest

from verifier.proportions import (
    Rate,
    design_effect,
    detection_tokens,
    difference_bounds,
    noninferiority_tokens,
    wilson,
    z_value,
)


def test_wilson_against_its_defining_equation() -> None:
    # The bounds are the rates p at which (x/n - p)^2 = z^2 p (1 - p) / n.
    for events, trials in [(14, 1280), (0, 50), (50, 50), (3, 7)]:
        low, high = wilson(Rate(events, trials))
        z = z_value(0.975)
        for p in (low, high):
            distance = abs(events / trials - p)
            assert distance == pytest.approx(z * math.sqrt(p * (1 - p) / trials), abs=1e-9)


def test_measured_rate_of_the_default_setting() -> None:
    low, high = wilson(Rate(14, 1280))
    assert (round(low, 4), round(high, 4)) == (0.0065, 0.0183)


def test_difference_bounds_cover_in_simulation() -> None:
    rng = np.random.default_rng(3)
    p_candidate, p_stock, n, m = 0.02, 0.011, 1500, 3000
    below = above = 0
    for x, y in zip(
        rng.binomial(n, p_candidate, 4000), rng.binomial(m, p_stock, 4000), strict=True
    ):
        low, high = difference_bounds(Rate(x, n), Rate(y, m))
        below += p_candidate - p_stock < low
        above += p_candidate - p_stock > high
    assert 0.03 < below / 4000 < 0.07
    assert 0.03 < above / 4000 < 0.07


def test_detection_tokens_is_the_smallest_that_does() -> None:
    n = detection_tokens(0.001)
    assert n == 2995
    assert 0.999**n <= 0.05 < 0.999 ** (n - 1)


def test_design_effect_sees_clusters() -> None:
    rng = np.random.default_rng(5)
    even = [Rate(int(x), 200) for x in rng.binomial(200, 0.02, 400)]
    lumps = [Rate(int(10 * (u < 0.4)), 200) for u in rng.random(400)]
    assert design_effect(even) < 1.25
    # All or nothing at 10 of 200: variance 100 * .4 * .6 = 24 against 200 * .02 * .98 = 3.92.
    assert design_effect(lumps) == pytest.approx(24 / 3.92, rel=0.1)
    assert design_effect([Rate(0, 10), Rate(0, 10)]) == 1.0


@pytest.mark.parametrize("power", [0.8, 0.95])
def test_planned_sample_gives_its_power(power: float) -> None:
    rate, stock_tokens, delta = 0.012, 4000, 0.012
    n = noninferiority_tokens(Rate(rate * stock_tokens, stock_tokens), delta, power=power)
    assert n is not None
    rng = np.random.default_rng(7)
    draws = zip(rng.binomial(n, rate, 4000), rng.binomial(stock_tokens, rate, 4000), strict=True)
    passed = sum(difference_bounds(Rate(x, n), Rate(y, stock_tokens))[1] < delta for x, y in draws)
    assert power - 0.03 < passed / 4000 < power + 0.05


def test_no_sample_makes_up_for_a_small_calibration() -> None:
    assert noninferiority_tokens(Rate(3, 250), 0.01, power=0.95) is None
    assert noninferiority_tokens(Rate(0, 0), 0.01, power=0.95) is None


def test_design_effect_asks_for_more_tokens() -> None:
    stock = Rate(66, 6000)
    plain = noninferiority_tokens(stock, 0.011, power=0.95)
    clustered = noninferiority_tokens(stock, 0.011, power=0.95, design=1.5)
    assert plain is not None and clustered is not None
    assert clustered > 1.4 * plain
