"""Intervals and sample sizes for rates of rare token events.

Wilson (1927) score interval; Newcombe (1998, method 10) interval for a difference of two rates;
design effect of a ratio estimator over clusters (Kish 1965): tokens of one answer are not
independent, so counts are scaled down to an effective size before any interval is taken.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist


@dataclass(frozen=True)
class Rate:
    """`events` in `trials`; both may be fractional after division by a design effect."""

    events: float
    trials: float

    @property
    def value(self) -> float:
        return self.events / self.trials if self.trials else 0.0

    def effective(self, design: float) -> Rate:
        """The same rate with its size divided by the design effect."""
        return Rate(self.events / design, self.trials / design)


def z_value(confidence: float) -> float:
    """Standard normal quantile of a one-sided confidence."""
    return NormalDist().inv_cdf(confidence)


def wilson(rate: Rate, confidence: float = 0.95) -> tuple[float, float]:
    """Two-sided Wilson interval; (0, 1) without trials."""
    return _wilson(rate, z_value((1 + confidence) / 2))


def _wilson(rate: Rate, z: float) -> tuple[float, float]:
    n = rate.trials
    if n <= 0:
        return 0.0, 1.0
    p = rate.value
    centre = (p + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    return max(0.0, centre - half), min(1.0, centre + half)


def difference_bounds(
    candidate: Rate, stock: Rate, confidence: float = 0.95
) -> tuple[float, float]:
    """One-sided lower and upper bounds of candidate - stock, each at `confidence` (Newcombe)."""
    z = z_value(confidence)
    low_c, high_c = _wilson(candidate, z)
    low_s, high_s = _wilson(stock, z)
    difference = candidate.value - stock.value
    low = difference - math.hypot(candidate.value - low_c, high_s - stock.value)
    high = difference + math.hypot(high_c - candidate.value, stock.value - low_s)
    return low, high


def design_effect(clusters: Sequence[Rate]) -> float:
    """Variance of the pooled rate over answers divided by the binomial variance, at least 1."""
    trials = sum(c.trials for c in clusters)
    pooled = Rate(sum(c.events for c in clusters), trials).value
    count = sum(1 for c in clusters if c.trials)
    if count < 2 or pooled in (0.0, 1.0):
        return 1.0
    squares = sum((c.events - pooled * c.trials) ** 2 for c in clusters)
    return max(1.0, squares * count / (count - 1) / (trials * pooled * (1 - pooled)))


def detection_tokens(wrong_rate: float, confidence: float = 0.95) -> int:
    """Tokens to check so that at least one wrong one is met: (1 - wrong_rate)^n <= 1 - confidence.

    2,995 for one wrong token in 1,000 at 95 %; one where every token is wrong.
    """
    if wrong_rate >= 1.0:
        return 1
    return math.ceil(math.log(1 - confidence) / math.log1p(-wrong_rate))


def wrong_rate_bound(wrong: int, tokens: int, confidence: float = 0.95) -> float:
    """One-sided upper bound of the share of wrong tokens after `wrong` in `tokens` (Clopper and
    Pearson 1934): the rate at which so few or fewer are met with probability 1 - confidence."""
    if wrong >= tokens:
        return 1.0
    low, high = wrong / tokens, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        if _at_most(wrong, tokens, middle) > 1 - confidence:
            low = middle
        else:
            high = middle
    return high


def _at_most(events: int, trials: int, rate: float) -> float:
    """P(X <= events) of a binomial, summed in logarithms."""
    if rate >= 1.0:
        return 0.0
    if rate <= 0.0:
        return 1.0
    total = math.lgamma(trials + 1)
    return math.fsum(
        math.exp(
            total
            - math.lgamma(k + 1)
            - math.lgamma(trials - k + 1)
            + k * math.log(rate)
            + (trials - k) * math.log1p(-rate)
        )
        for k in range(events + 1)
    )


def noninferiority_tokens(
    stock: Rate,
    delta: float,
    *,
    power: float,
    confidence: float = 0.95,
    design: float = 1.0,
    ceiling: int = 1_000_000,
) -> int | None:
    """Smallest candidate sample for which a candidate as good as stock passes with `power`.

    Passing means that the upper bound of candidate - stock is below `delta`. The observed
    difference is put at its `power` quantile under equal true rates (both samples vary) and goes
    through `difference_bounds` itself. `stock` is as counted; `design` divides both samples. The
    rate planned with is Wilson's centre, so that a stock without a near-tie is not planned at zero.
    None when no sample is enough: the stock sample is too small for this delta.
    """
    reference = stock.effective(design)
    z = z_value((1 + confidence) / 2)
    planned = (reference.events + z * z / 2) / (reference.trials + z * z)

    def passes(tokens: int) -> bool:
        size = tokens / design
        spread = math.sqrt(planned * (1 - planned) * (1 / size + 1 / reference.trials))
        observed = min(1.0, planned + z_value(power) * spread)
        plan = Rate(planned * reference.trials, reference.trials)
        return difference_bounds(Rate(observed * size, size), plan, confidence)[1] < delta

    if reference.trials <= 0 or not passes(ceiling):
        return None
    low, high = 1, ceiling
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if passes(middle) else (middle + 1, high)
    return low
