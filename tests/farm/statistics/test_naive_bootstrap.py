"""The closed form of the naive bootstrap against the bootstrap itself."""

from __future__ import annotations

import numpy as np
import pytest

from farm.statistics.naive_bootstrap import token_interval


def test_the_closed_form_is_the_bootstrap_over_single_tokens() -> None:
    rng = np.random.default_rng(0)
    top, bottom = rng.lognormal(0.0, 0.5, 1500), rng.lognormal(0.1, 0.6, 1500)
    tokens = [np.repeat(steps, 2) for steps in (bottom, top)]
    draws = []
    for _ in range(3000):
        below, above = (rng.choice(arm, arm.size).mean() for arm in tokens)
        draws.append(np.log(below / above))
    found = token_interval(top, bottom, 2.0)
    assert found == pytest.approx(tuple(np.quantile(draws, [0.025, 0.975])), abs=3e-3)
