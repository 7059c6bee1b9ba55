"""The signed-rank test against brute force over all signs and against scipy."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy import stats

from farm.statistics.wilcoxon import signed_rank_p


def _brute(values: np.ndarray, centre: float) -> float:
    d = values[values != centre] - centre
    ranks = stats.rankdata(np.abs(d))
    seen = ranks[d > 0].sum()
    sums = [
        ranks[np.asarray(signs, dtype=bool)].sum()
        for signs in itertools.product([0, 1], repeat=len(d))
    ]
    return float(np.mean([s <= seen for s in sums]))


@pytest.mark.parametrize("n", [1, 4, 7, 10])
def test_brute_force_over_all_signs(n: int) -> None:
    rng = np.random.default_rng(n)
    for _ in range(10):
        values = np.round(rng.normal(0, 0.03, n), 2)  # rounded: ties and zeros occur
        assert signed_rank_p(values, 0.01) == pytest.approx(
            _brute(values, 0.01) if (values != 0.01).any() else 1.0
        )


def test_scipy_agrees_without_ties() -> None:
    rng = np.random.default_rng(0)
    for n in (5, 14, 25):
        values = rng.normal(0.0, 1.0, n)
        wanted = stats.wilcoxon(values - 0.3, alternative="less", method="exact").pvalue
        assert signed_rank_p(values, 0.3) == pytest.approx(wanted)


def test_nothing_differs_from_the_centre() -> None:
    assert signed_rank_p(np.full(5, 0.2), 0.2) == 1.0
    assert signed_rank_p(np.full(5, 0.1), 0.2) == pytest.approx(1 / 32)
