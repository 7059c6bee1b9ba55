"""The interval of a log-ratio over launch > round > prompt, and of its two factors.

Prompts are resampled whole (rounds and steps inside), and the percentiles expanded for few units
(Hesterberg 2015, "What teachers should know about the bootstrap", 5.3); below
`FEWEST_FOR_PERCENTILES` prompts, or where too few draws lie beyond the bound, a t interval on the
bootstrap's standard error is used. From `ENOUGH_LAUNCHES` launches on, launch effects are resampled
too; with fewer there is next to nothing to resample, and the spread between launches is added in
quadrature with the t quantile of its own degrees of freedom (MOVER: Zou & Donner 2008, Statistics
in Medicine 27, 1693-1702), so a single lucky launch cannot look certain.

How often it covers, and how wide it is: `python -m farm.statistics.proof`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from farm.statistics.launch_spread import UNKNOWN, LaunchSpread, launch_spreads, pooled
from farm.statistics.layout import Layout, layout_of
from farm.statistics.resampling import launch_draws, prompt_draws
from farm.statistics.statistic import Components, Floats, Statistic
from farm.statistics.student_t import t_quantile

FEWEST_FOR_PERCENTILES = 6
ENOUGH_LAUNCHES = 5
_DRAWS_BEYOND = 10
_MOST_DRAWS = 20_000


@dataclass(frozen=True)
class Bounds:
    """A natural logarithm and its interval."""

    point: float
    low: float
    high: float


@dataclass(frozen=True)
class LogInterval:
    """A log-ratio and its two factors (`ratio = tau + step`), each with an interval from the same
    draws; `spread` is the launch spread that entered the ratio's."""

    ratio: Bounds
    tau: Bounds
    step: Bounds
    prompts: int
    launches: int
    spread: LaunchSpread
    kind: str

    @property
    def low(self) -> float:
        return self.ratio.low

    @property
    def high(self) -> float:
        return self.ratio.high

    @property
    def components(self) -> Components:
        return Components(self.ratio.point, self.tau.point, self.step.point)


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
            this statistic's own launches show. It is a spread of clocks: accept lengths are
            counted, and theirs comes from their own launches alone.
        resamples: at least; more are drawn where `confidence` asks for bounds further out.

    Raises:
        ValueError: fewer than two prompts have data on both sides.
    """
    present = statistic.present
    layout = layout_of(present)
    if layout.prompts < 2:
        raise ValueError(f"{layout.prompts} prompts have data of both arms; two are the least")
    point = statistic.evaluate(present.astype(np.float64))
    tail = (1.0 - confidence) / 2.0
    share = max(_percentile(layout, tail), _DRAWS_BEYOND / _MOST_DRAWS)
    draws = resamples
    if layout.prompts >= FEWEST_FOR_PERCENTILES:
        draws = max(resamples, math.ceil(_DRAWS_BEYOND / share))
    moved = statistic.evaluate_each(prompt_draws(present, draws, seed)) - np.asarray(point)
    rng = np.random.default_rng(seed + 1)
    cells = statistic.cells() if layout.launches > 1 else None
    shown = [UNKNOWN] * 3 if cells is None else launch_spreads(cells)
    bounds, spreads, kinds = [], [], []
    for part, known in enumerate((launch, UNKNOWN, launch)):
        own = None if cells is None else cells[:, :, part]
        spread = pooled([known, shown[part]])
        down, up, kind = _reach(moved[:, part], own, spread, layout, tail, rng)
        bounds.append(Bounds(point[part], point[part] - down, point[part] + up))
        spreads.append(spread)
        kinds.append(kind)
    ratio, tau, step = bounds
    return LogInterval(ratio, tau, step, layout.prompts, layout.launches, spreads[0], kinds[0])


def _reach(
    moved: Floats,
    cells: Floats | None,
    spread: LaunchSpread,
    layout: Layout,
    tail: float,
    rng: np.random.Generator,
) -> tuple[float, float, str]:
    """How far the bounds lie below and above the point, and how that was found."""
    if cells is not None and layout.launches >= ENOUGH_LAUNCHES:
        means = np.nanmean(cells[~np.isnan(cells).all(axis=1)], axis=1)
        both = _inflation(spread.df, tail) * launch_draws(means, spread.sd, len(moved), rng)
        both += _inflation(layout.prompt_df, tail) * _unbiased(layout) * moved
        if len(moved) * tail >= _DRAWS_BEYOND:
            low, high = np.quantile(both, [tail, 1.0 - tail])
            kind = "bootstrap over launches and prompts"
            return max(-float(low), 0.0), max(float(high), 0.0), kind
    down, up, kind = _over_prompts(moved, layout, tail)
    if not spread.df:
        return down, up, kind
    extra = t_quantile(1.0 - tail, spread.df) * spread.sd / math.sqrt(layout.launches)
    kind += f", t on {spread.df} df over launches"
    return math.hypot(down, extra), math.hypot(up, extra), kind


def _over_prompts(moved: Floats, layout: Layout, tail: float) -> tuple[float, float, str]:
    """The same with the launches as they are."""
    t = t_quantile(1.0 - tail, layout.prompt_df)
    share = _percentile(layout, tail)
    if layout.prompts < FEWEST_FOR_PERCENTILES or len(moved) * share < _DRAWS_BEYOND:
        half = t * _unbiased(layout) * float(np.std(moved))
        return half, half, "t over prompts"
    low, high = np.quantile(moved, [share, 1.0 - share])
    return max(-float(low), 0.0), max(float(high), 0.0), "bootstrap over prompts"


def _unbiased(layout: Layout) -> float:
    """What a bootstrap's standard deviation lacks."""
    units = layout.prompt_df + (1 if layout.crossed else layout.launches)
    return math.sqrt(units / layout.prompt_df)


def _inflation(df: int, tail: float) -> float:
    """t quantile over the normal one."""
    return t_quantile(1.0 - tail, df) / NormalDist().inv_cdf(1.0 - tail)


def _percentile(layout: Layout, tail: float) -> float:
    """Which percentile of the prompt draws stands for `tail`."""
    return NormalDist().cdf(-_unbiased(layout) * t_quantile(1.0 - tail, layout.prompt_df))
