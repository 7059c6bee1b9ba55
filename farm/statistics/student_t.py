"""Quantiles of Student's t for whole degrees of freedom, without a statistics library.

The distribution function is the finite trigonometric series of Abramowitz & Stegun 26.7.3-4.
"""

from __future__ import annotations

import math
from functools import lru_cache


def t_cdf(value: float, df: int) -> float:
    """P(T <= value) for T with `df` >= 1 degrees of freedom."""
    theta = math.atan(value / math.sqrt(df))
    cosine, sine = math.cos(theta), math.sin(theta)
    if df % 2:
        term, series = cosine, 0.0
        for k in range(1, (df - 1) // 2 + 1):
            series += term
            term *= cosine * cosine * (2 * k) / (2 * k + 1)
        return 0.5 + (theta + sine * series) / math.pi
    term, series = 1.0, 0.0
    for k in range(1, df // 2 + 1):
        series += term
        term *= cosine * cosine * (2 * k - 1) / (2 * k)
    return 0.5 + sine * series / 2


@lru_cache(maxsize=512)
def t_quantile(probability: float, df: int) -> float:
    """The value below which T lies with `probability` (0 < probability < 1)."""
    if not 0.0 < probability < 1.0 or df < 1:
        raise ValueError(f"no t quantile for probability {probability} and df {df}")
    if probability < 0.5:
        return -t_quantile(1.0 - probability, df)
    low, high = 0.0, 2.0
    while t_cdf(high, df) < probability:
        high *= 2
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if t_cdf(middle, df) < probability else (low, middle)
    return (low + high) / 2
