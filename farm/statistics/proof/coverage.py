"""How often the 95 % interval holds the truth, and how wide it is beside the oracle's.

The oracle knows the standard error: its interval is 2 x 1.96 times the standard deviation of the
point estimate over all simulated campaigns. The naive interval bootstraps single tokens as if they
were independent of each other.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from farm.statistics.launch_spread import UNKNOWN, LaunchSpread, launch_spread
from farm.statistics.naive_bootstrap import token_interval
from farm.statistics.ratio_interval import LogInterval, log_interval
from farm.statistics.simulate import Noise
from farm.statistics.simulate_campaigns import (
    ACCEPT_LENGTH,
    BUSY_MACHINE,
    LAUNCHES_AA,
    LAUNCHES_CONFIRM,
    NO_CHANGE,
    QUIET_MACHINE,
    TIE_SD,
    Effect,
    cells,
    flat,
    kernel,
    mechanism,
)
from farm.statistics.statistic import CellMeans, Floats

CAMPAIGNS = 2000
_CHUNK = 200
_NORMAL_975 = 1.959964


@dataclass(frozen=True)
class Design:
    """A measurement: its launches, whether they share prompts, and whether the spread of an A/A
    placebo of three launches enters."""

    name: str
    launches: int
    same_prompts: bool = False
    placebo: bool = True


SCREENING = Design("screening, 1 launch", 1)
PLACEBO = Design("A/A placebo, 3 launches", LAUNCHES_AA, placebo=False)
CONFIRMATION = Design("confirmation, 3 launches", LAUNCHES_CONFIRM)
SIX = Design("6 launches, prompts of their own", 6)
SIX_SHARED = Design("6 launches, the same prompts", 6, same_prompts=True)
DESIGNS = (SCREENING, PLACEBO, CONFIRMATION, SIX, SIX_SHARED)

MACHINES = {"quiet": QUIET_MACHINE, "busy": BUSY_MACHINE}
EFFECTS = {
    "no change": NO_CHANGE,
    "draft x1.3": mechanism(0.262),
    "kernel x1.3, BF16": kernel(0.262, TIE_SD),
}


@dataclass(frozen=True)
class Coverage:
    """Shares of campaigns whose interval holds the truth: the ratio's, its two factors', the
    naive one's (None where it was not asked for). `width` is the median width over the oracle's."""

    campaigns: int
    ratio: float
    width: float
    tau: float
    step: float
    naive: float | None = None


def coverage(
    design: Design,
    noise: Noise,
    effect: Effect,
    campaigns: int = CAMPAIGNS,
    *,
    naive: bool = False,
    seed: int = 0,
) -> Coverage:
    """Simulates `campaigns` and judges every interval against `effect`."""
    rng = np.random.default_rng(seed)
    found: list[LogInterval] = []
    fooled: list[bool] = []
    for start in range(0, campaigns, _CHUNK):
        count = min(_CHUNK, campaigns - start)
        spreads = placebo_spreads(rng, noise, count) if design.placebo else [UNKNOWN] * count
        made = cells(
            rng,
            noise,
            effect,
            count,
            design.launches,
            same_prompts=design.same_prompts,
            keep_gaps=naive,
        )
        for campaign in range(count):
            table = CellMeans(flat(made.values[campaign], design.same_prompts))
            found.append(log_interval(table, launch=spreads[campaign]))
            if made.gaps is not None:
                candidate, stock = np.moveaxis(made.gaps[campaign], -1, 0)
                low, high = token_interval(candidate, stock, ACCEPT_LENGTH)
                fooled.append(low <= effect.step <= high)
    points = np.asarray([interval.components.ratio for interval in found])
    widths = np.asarray([interval.high - interval.low for interval in found])
    return Coverage(
        campaigns,
        float(np.mean([i.low <= effect.ratio <= i.high for i in found])),
        float(np.median(widths) / (2 * _NORMAL_975 * np.std(points))),
        float(np.mean([i.tau.low <= effect.tau <= i.tau.high for i in found])),
        float(np.mean([i.step.low <= effect.step <= i.step.high for i in found])),
        float(np.mean(fooled)) if naive else None,
    )


def placebo_spreads(rng: np.random.Generator, noise: Noise, campaigns: int) -> list[LaunchSpread]:
    """What each campaign's placebo shows of the spread between launches."""
    placebo = cells(rng, noise, NO_CHANGE, campaigns, LAUNCHES_AA).values
    return [spread_of(flat(values)) for values in placebo]


def spread_of(table: Floats) -> LaunchSpread:
    """The launch spread of the ratio in one campaign's cells (launches, prompts, 3)."""
    return launch_spread(table[:, :, 0])
