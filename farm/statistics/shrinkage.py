"""Shrunken estimates of many effects at once: empirical Bayes towards "no change".

The largest of many noisy estimates is too large on average. With effects spread about no change,
theta_i ~ N(0, A), and y_i ~ N(theta_i, s_i^2), the estimate (1 - B_i) y_i with
B_i = (m - 2) / m * s_i^2 / (s_i^2 + A) is nearer the truth in total. A solves
sum y_i^2 / (s_i^2 + A) = m (Morris 1983, "Parametric empirical Bayes inference", JASA 78, 47-55,
with the mean known); for equal s_i it is the James-Stein estimator, and B_i is never above 1 (the
positive part: Efron & Morris 1973, JASA 68, 117-130).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from farm.statistics.statistic import Floats

FEWEST = 3
_HALVINGS = 200


def shrunken(logs: Sequence[float], errors: Sequence[float]) -> Floats:
    """Shrunken log-ratios, in the order given.

    Args:
        logs: measured log-ratios.
        errors: their standard errors (> 0).

    With fewer than three effects nothing is known of their spread and they are returned as
    measured.
    """
    y, variance = np.asarray(logs, dtype=np.float64), np.square(np.asarray(errors, np.float64))
    m = len(y)
    if m < FEWEST or not y.any():
        return y
    b = (m - 2) / m * variance / (variance + _spread(y, variance))
    found: Floats = (1.0 - np.minimum(b, 1.0)) * y
    return found


def _spread(y: Floats, variance: Floats) -> float:
    """A; above minus the least variance, where the sum has its pole."""
    m = len(y)
    least = float(variance[y != 0.0].min())
    low, high = -least, float(np.square(y).sum())
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        below = middle <= -least or float(np.sum(np.square(y) / (variance + middle))) > m
        low, high = (middle, high) if below else (low, middle)
    return high
