"""How much a ratio moves from launch to launch, beyond what its prompts explain.

Two launches of the same tree differ (memory layout, huge pages, placement), and one launch shows
nothing of it. The variance between launches is what the launch means show less what their prompts
explain (Searle, Casella & McCulloch, Variance Components, ch. 4): with the same prompts in every
launch the residual of the two-way layout, with fresh prompts the variance within launches.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from farm.statistics.layout import Flags, layout_of
from farm.statistics.statistic import Floats

# With three launches the usual estimate is often zero, and then the interval is too narrow. A share
# of what the launch means show is kept instead, as boundary-avoiding estimators do (Chung et al.
# 2013, Psychometrika 78, 685-709). It is the smallest, in steps of 0.05, with which intervals cover
# 93 % whatever the ratio of launch to prompt variance (farm.statistics.proof.any_ratio).
LEAST_SHARE = 0.3


@dataclass(frozen=True)
class LaunchSpread:
    """Variance of the log-ratio between launches on `df` degrees of freedom (0: unknown).

    `variance` is the unbiased estimate, negative where prompts explain more than was seen;
    `observed` is the variance of the launch means it was taken from.
    """

    variance: float
    observed: float
    df: int

    @property
    def sd(self) -> float:
        """Standard deviation to reckon with; 0 only where nothing at all was seen."""
        return math.sqrt(max(self.variance, LEAST_SHARE * self.observed, 0.0))

    @staticmethod
    def known(sd: float, df: int) -> LaunchSpread:
        """A spread given as a standard deviation."""
        return LaunchSpread(sd * sd, 0.0, df)


UNKNOWN = LaunchSpread(0.0, 0.0, 0)


def launch_spread(cells: Floats) -> LaunchSpread:
    """From log-ratios (launches, prompts), NaN = absent."""
    return launch_spreads(cells[:, :, None])[0]


def launch_spreads(cells: Floats) -> list[LaunchSpread]:
    """Of each kind of log-ratio in (launches, prompts, kinds), absent alike in all kinds."""
    present = ~np.isnan(cells[:, :, 0])
    cells, present = cells[present.any(axis=1)], present[present.any(axis=1)]
    launches, kinds = len(cells), cells.shape[2]
    if launches < 2:
        return [UNKNOWN] * kinds
    values = np.where(present[:, :, None], cells, 0.0)
    counts = present.sum(axis=1)
    observed = np.var(values.sum(axis=1) / counts[:, None], axis=0, ddof=1)
    within = _crossed if layout_of(present).crossed else _nested
    explained = within(values, present) * float(np.mean(1.0 / counts))
    return [
        LaunchSpread(float(seen - prompts), float(seen), launches - 1)
        for seen, prompts in zip(observed, explained, strict=True)
    ]


def _crossed(values: Floats, present: Flags) -> Floats:
    """Residual variance of launch x prompt, from the prompts that several launches asked."""
    shared = present.sum(axis=0) >= 2
    values, present = values[:, shared], present[:, shared]
    if values.shape[1] < 2:
        return np.zeros(values.shape[2])
    there = present[:, :, None]
    rows = values.sum(axis=1, keepdims=True) / there.sum(axis=1, keepdims=True)
    columns = values.sum(axis=0, keepdims=True) / there.sum(axis=0, keepdims=True)
    residual = (values - columns - rows + values.sum(axis=(0, 1)) / there.sum()) * there
    df = int(present.sum()) - values.shape[1] - values.shape[0] + 1
    return _mean_square(residual, df)


def _nested(values: Floats, present: Flags) -> Floats:
    """Variance of prompts within their launches, pooled."""
    there = present[:, :, None]
    residual = values - values.sum(axis=1, keepdims=True) / there.sum(axis=1, keepdims=True)
    df = int(present.sum()) - len(values)
    return _mean_square(residual * there, df)


def _mean_square(residual: Floats, df: int) -> Floats:
    found: Floats = np.einsum("lpk,lpk->k", residual, residual) / max(df, 1)
    return found


def pooled(spreads: Iterable[LaunchSpread]) -> LaunchSpread:
    """One spread out of several independent ones, weighted by their degrees of freedom."""
    known = [spread for spread in spreads if spread.df > 0]
    df = sum(spread.df for spread in known)
    if not df:
        return UNKNOWN
    return LaunchSpread(
        sum(s.df * s.variance for s in known) / df,
        sum(s.df * s.observed for s in known) / df,
        df,
    )
