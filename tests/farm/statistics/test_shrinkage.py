"""Shrinkage against the James-Stein formula, and its promise against simulated truth."""

from __future__ import annotations

import numpy as np
import pytest

from farm.statistics.shrinkage import shrunken


@pytest.mark.parametrize("m", [3, 4, 9])
def test_equal_errors_give_the_positive_part_james_stein_estimator(m: int) -> None:
    rng = np.random.default_rng(m)
    for size in (0.01, 0.05, 0.3):
        y = rng.normal(0, size, m)
        keep = max(0.0, 1.0 - (m - 2) * 0.05**2 / float(np.sum(y**2)))
        np.testing.assert_allclose(shrunken(y.tolist(), [0.05] * m), keep * y, atol=1e-12)


def test_the_noisier_estimate_is_shrunk_more_and_no_sign_turns() -> None:
    found = shrunken([0.2, 0.2, -0.1, 0.0], [0.02, 0.2, 0.05, 0.05])
    assert 0.0 <= found[1] < found[0] < 0.2
    assert found[2] <= 0.0 and found[3] == 0.0


def test_few_or_empty_effects_stay_as_measured() -> None:
    np.testing.assert_array_equal(shrunken([0.3, -0.1], [0.1, 0.1]), [0.3, -0.1])
    np.testing.assert_array_equal(shrunken([0.0] * 4, [0.1] * 4), np.zeros(4))
    assert len(shrunken([], [])) == 0


def test_large_effects_are_left_nearly_alone() -> None:
    found = shrunken([0.8, 0.3, -0.02, 0.01], [0.05, 0.05, 0.05, 0.05])
    assert found[0] > 0.98 * 0.8


@pytest.mark.parametrize("spread", [0.0, 0.03, 0.1, 0.4])
def test_total_error_and_the_winners_curse_are_smaller_than_raw(spread: float) -> None:
    rng = np.random.default_rng(1)
    raw_error = shrunk_error = raw_bias = shrunk_bias = 0.0
    for _ in range(800):
        errors = rng.uniform(0.02, 0.1, 9)
        truth = rng.normal(0, spread, 9)
        y = truth + rng.normal(0, errors)
        found = shrunken(y.tolist(), errors.tolist())
        raw_error += float(np.sum((y - truth) ** 2))
        shrunk_error += float(np.sum((found - truth) ** 2))
        best = int(np.argmax(y))
        raw_bias += y[best] - truth[best]
        shrunk_bias += found[best] - truth[best]
    assert shrunk_error < raw_error
    assert raw_bias > 0
    assert abs(shrunk_bias) < 0.8 * raw_bias
