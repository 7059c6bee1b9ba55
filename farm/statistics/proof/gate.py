"""The whole way to a promotion: placebo, screening, confirmation, on candidates of known effect."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from farm.statistics.launch_spread import LaunchSpread
from farm.statistics.multiplicity import confirmation_confidence
from farm.statistics.ratio_interval import log_interval
from farm.statistics.simulate import Noise
from farm.statistics.simulate_campaigns import (
    LAUNCHES_AA,
    LAUNCHES_CONFIRM,
    NO_CHANGE,
    Effect,
    cells,
    flat,
)
from farm.statistics.statistic import CellMeans, Floats


@dataclass(frozen=True)
class Placebo:
    """What one campaign's A/A told: the log floor, the launch spread, whether it refuses
    promotions, and whether it took a second look."""

    log_floor: float
    spread: LaunchSpread
    refuses: bool
    again: bool


def placebos(rng: np.random.Generator, noise: Noise, campaigns: int) -> list[Placebo]:
    """Three launches of stock against itself; three more where their interval excludes 1."""
    values = cells(rng, noise, NO_CHANGE, campaigns, 2 * LAUNCHES_AA).values
    return [_placebo(campaign) for campaign in values]


def _placebo(values: Floats) -> Placebo:
    for launches in (LAUNCHES_AA, 2 * LAUNCHES_AA):
        found = log_interval(CellMeans(flat(values[:launches])))
        refuses = found.low > 0.0 or found.high < 0.0
        if not refuses:
            break
    return Placebo(max(found.high, 0.0), found.spread, refuses, launches > LAUNCHES_AA)


@dataclass(frozen=True)
class GateFigures:
    """Shares of all candidates: accepted at screening, and accepted in the end (`confirmed`).
    `refused`: share of campaigns whose placebo refuses promotions, `again` took a second look."""

    campaigns: int
    candidates: int
    screened: float
    confirmed: float
    refused: float
    again: float


def gate(
    noise: Noise, effects: Sequence[Effect], campaigns: int, *, of: Effect, seed: int = 0
) -> GateFigures:
    """Campaigns that each screen `effects` and confirm the best of what is accepted.

    Args:
        of: which of the effects the figures are about (compared by value).
    """
    rng = np.random.default_rng(seed)
    bars = placebos(rng, noise, campaigns)
    screens = [cells(rng, noise, effect, campaigns, 1).values for effect in effects]
    confirms = {
        effect: cells(rng, noise, effect, campaigns, LAUNCHES_CONFIRM).values
        for effect in set(effects)
    }
    screened = confirmed = 0
    for campaign, placebo in enumerate(bars):
        accepted = [
            (found.components.ratio, effect)
            for effect, screen in zip(effects, screens, strict=True)
            if (found := log_interval(CellMeans(screen[campaign]), launch=placebo.spread)).low
            > placebo.log_floor
        ]
        screened += sum(effect == of for _, effect in accepted)
        if not accepted or placebo.refuses:
            continue
        best = max(accepted, key=lambda pair: pair[0])[1]
        if best == of:
            confirmed += confirms_at(confirms[best][campaign], placebo, len(accepted))
    asked = campaigns * sum(effect == of for effect in effects)
    return GateFigures(
        campaigns,
        asked,
        screened / asked,
        confirmed / asked,
        sum(p.refuses for p in bars) / campaigns,
        sum(p.again for p in bars) / campaigns,
    )


def confirms_at(values: Floats, placebo: Placebo, competing: int) -> bool:
    """Whether a confirmation's lower bound, at the level `competing` asks for, is above the
    floor."""
    found = log_interval(
        CellMeans(flat(values)),
        launch=placebo.spread,
        confidence=confirmation_confidence(competing),
    )
    return found.low > placebo.log_floor
