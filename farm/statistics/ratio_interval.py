"""The 95 % interval of a log-ratio over launch > round > prompt.

Prompts are resampled with all their rounds and steps (tokens and slices within one prompt are not
independent), the same draw in every launch, since the prompts are the same. The percentile interval
is expanded for few units (Hesterberg 2015, "What teachers should know about the bootstrap", 5.3);
below `FEWEST_FOR_PERCENTILES` prompts a t interval on the bootstrap's standard error is used. The
spread between launches is then added in quadrature with the t quantile of its own degrees of
freedom, so a single lucky launch cannot look certain.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from farm.statistics.launch_spread import UNKNOWN, LaunchSpread, launch_spread, pooled
from farm.statistics.statistic import Components, Floats, Statistic
from farm.statistics.student_t import t_quantile

FEWEST_FOR_PERCENTILES = 6


@dataclass(frozen=True)
class LogInterval:
    """A log-ratio with its bounds; `spread` is the launch spread that entered it."""

    components: Components
    low: float
    high: float
    prompts: int
    launches: int
    spread: LaunchSpread
    kind: str


def log_interval(
    statistic: Statistic,
    *,
    launch: LaunchSpread = UNKNOWN,
    confidence: float = 0.95,
    resamples: int = 1000,
    seed: int = 0,
) -> LogInterval:
    """Interval of `statistic`.

    Args:
        launch: spread between launches known from elsewhere (the A/A placebo); pooled with what
            this statistic's own launches show.

    Raises:
        ValueError: fewer than two prompts have data on both sides.
    """
    present = statistic.present
    used = np.flatnonzero(present.any(axis=0))
    launches = int(present.any(axis=1).sum())
    n = len(used)
    if n < 2:
        raise ValueError(f"{n} prompts have data of both arms; two are the least")
    ones = present.astype(np.float64)
    point = statistic.evaluate(ones)
    draws = _bootstrap(statistic, ones, used, resamples, seed)
    tail = (1.0 - confidence) / 2.0
    t = t_quantile(1.0 - tail, n - 1)
    if n < FEWEST_FOR_PERCENTILES:
        half = t * math.sqrt(n / (n - 1)) * float(np.std(draws, ddof=1))
        down = up = half
        kind = "t"
    else:
        share = NormalDist().cdf(-math.sqrt(n / (n - 1)) * t)
        low, high = np.quantile(draws, [share, 1.0 - share])
        down, up = max(point.ratio - float(low), 0.0), max(float(high) - point.ratio, 0.0)
        kind = "bootstrap"
    spread = launch
    if launches > 1:
        spread = pooled([launch, launch_spread(jackknife_cells(statistic))])
    if spread.df:
        extra = t_quantile(1.0 - tail, spread.df) * spread.sd / math.sqrt(launches)
        down, up = math.hypot(down, extra), math.hypot(up, extra)
        kind += "+launches"
    return LogInterval(point, point.ratio - down, point.ratio + up, n, launches, spread, kind)


def _bootstrap(
    statistic: Statistic, ones: Floats, used: np.ndarray, resamples: int, seed: int
) -> Floats:
    rng = np.random.default_rng(seed)
    draws = np.empty(resamples)
    for i in range(resamples):
        counts = np.zeros(ones.shape[1])
        while not (ones * counts).any():
            counts[used] = rng.multinomial(len(used), np.full(len(used), 1.0 / len(used)))
        draws[i] = statistic.evaluate(ones * counts).ratio
    return draws


def jackknife_cells(statistic: Statistic) -> Floats:
    """Log-ratio of each (launch, prompt) as jackknife pseudo-values within its launch, NaN where
    absent; equal to the cells themselves for a mean of cells."""
    present = statistic.present
    cells = np.full(present.shape, np.nan)
    for row in range(present.shape[0]):
        alone = np.zeros(present.shape)
        alone[row] = present[row]
        n = int(present[row].sum())
        if n < 2:
            continue
        whole = statistic.evaluate(alone).ratio
        for column in np.flatnonzero(present[row]):
            alone[row, column] = 0.0
            cells[row, column] = n * whole - (n - 1) * statistic.evaluate(alone).ratio
            alone[row, column] = 1.0
    measured: Floats = cells[~np.isnan(cells).all(axis=1)]
    return measured
