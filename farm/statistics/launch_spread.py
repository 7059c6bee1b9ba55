"""How much a ratio moves from launch to launch, beyond what its prompts explain.

Two launches of the same tree differ (memory layout, huge pages, placement), and one launch shows
nothing of it. The variance between launches is estimated by the two-way layout launch x prompt:
Var(launch means) = s_L^2 + s_res^2 / prompts, s_res from the interaction (Searle, Casella &
McCulloch, Variance Components, ch. 4); a negative estimate is 0.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from farm.statistics.statistic import Floats


@dataclass(frozen=True)
class LaunchSpread:
    """Standard deviation of the log-ratio between launches, on `df` degrees of freedom (df 0:
    unknown, and sd is 0)."""

    sd: float
    df: int


UNKNOWN = LaunchSpread(0.0, 0)


def launch_spread(cells: Floats) -> LaunchSpread:
    """From log-ratios (launches, prompts), NaN = absent."""
    launches = cells.shape[0]
    if launches < 2:
        return UNKNOWN
    launch_means = np.nanmean(cells, axis=1)
    observed = float(np.var(launch_means, ddof=1))
    prompts_each = np.mean(np.sum(~np.isnan(cells), axis=1))
    shared = np.sum(~np.isnan(cells), axis=0) >= 2
    if shared.sum() >= 2:
        block = cells[:, shared]
        effects = np.nanmean(block, axis=0, keepdims=True)
        rows = np.nanmean(block, axis=1, keepdims=True)
        residual = block - effects - rows + np.nanmean(block)
        df = (~np.isnan(block)).sum() - block.shape[1] - launches + 1
        within = float(np.nansum(residual**2) / max(int(df), 1)) / prompts_each
    else:
        within = float(np.nanmean(np.nanvar(cells, axis=1, ddof=1))) / prompts_each
    return LaunchSpread(math.sqrt(max(observed - within, 0.0)), launches - 1)


def pooled(spreads: Iterable[LaunchSpread]) -> LaunchSpread:
    """One spread out of several independent ones, weighted by their degrees of freedom."""
    known = [spread for spread in spreads if spread.df > 0]
    df = sum(spread.df for spread in known)
    if not df:
        return UNKNOWN
    return LaunchSpread(math.sqrt(sum(s.df * s.sd**2 for s in known) / df), df)
