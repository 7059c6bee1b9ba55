"""Coverage for any ratio of launch to prompt variance, not only those that were measured.

Cells are normal here: what is asked is whether the combination of the two levels covers, and the
answer hangs on nothing but the ratio, the numbers of launches and prompts, and the share that
farm.statistics.launch_spread never goes below.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from farm.statistics.launch_spread import UNKNOWN
from farm.statistics.proof.coverage import CAMPAIGNS, Design, spread_of
from farm.statistics.ratio_interval import log_interval
from farm.statistics.simulate_campaigns import LAUNCHES_AA, PROMPTS, flat
from farm.statistics.statistic import CellMeans, Floats

RATIOS = (0.0, 0.5, 1.0, 2.0, 4.0, 10.0, 100.0)
"""Variance between launches over the variance of a launch's mean that its prompts explain."""


@dataclass(frozen=True)
class RatioCoverage:
    """`covered`: share of campaigns; `width`: median over the oracle's."""

    covered: float
    width: float


def any_ratio(
    design: Design, ratio: float, campaigns: int = CAMPAIGNS, seed: int = 0
) -> RatioCoverage:
    """Campaigns of `design` without a change, each with its placebo where the design has one."""
    rng = np.random.default_rng(seed)
    launch_sd = math.sqrt(ratio / PROMPTS)

    def made(launches: int, same_prompts: bool = False) -> Floats:
        one = rng.normal(0.0, launch_sd, (launches, 1)) + rng.normal(0.0, 1.0, (launches, PROMPTS))
        return flat(np.stack([one, np.zeros_like(one), one], axis=-1), same_prompts)

    covered, widths = 0, []
    for _ in range(campaigns):
        spread = UNKNOWN
        if design.placebo:
            spread = spread_of(made(LAUNCHES_AA))
        table = CellMeans(made(design.launches, design.same_prompts))
        found = log_interval(table, launch=spread)
        covered += found.low <= 0.0 <= found.high
        widths.append(found.high - found.low)
    error = math.sqrt((ratio + 1.0) / PROMPTS / design.launches)
    return RatioCoverage(covered / campaigns, float(np.median(widths)) / (2 * 1.959964 * error))
