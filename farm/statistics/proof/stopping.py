"""What dropping losers early saves, and what it costs, on a mixed population.

Bench time is counted in timed prompts; launches and warm-up are the same whatever the rule.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from farm.statistics.early_drop import CONFIDENCE, FEWEST, hopeless
from farm.statistics.proof.gate import Placebo, confirms_at, placebos
from farm.statistics.ratio_interval import log_interval
from farm.statistics.simulate import Noise
from farm.statistics.simulate_campaigns import (
    LAUNCHES_CONFIRM,
    NO_CHANGE,
    PROMPTS,
    Effect,
    cells,
    kernel,
    mechanism,
)
from farm.statistics.statistic import CellMeans, Floats
from farm.statistics.student_t import t_quantile
from farm.statistics.wilcoxon import signed_rank_p

Rule = Callable[[Floats, float], bool]
LOSER, SAME, WINNER = "clear loser", "no change", "winner"


def by_signed_rank(values: Floats, log_bar: float) -> bool:
    """Wilcoxon's test in place of the t bound, one-sided at the same 5 % (five prompts are the
    first that can reach it)."""
    return len(values) >= FEWEST and signed_rank_p(values, log_bar) < 1.0 - CONFIDENCE


def never(values: Floats, log_bar: float) -> bool:
    """Every prompt is timed."""
    return False


RULES: dict[str, Rule] = {
    "none": never,
    "t bound (used)": hopeless,
    "Wilcoxon": by_signed_rank,
}


@dataclass(frozen=True)
class StoppingFigures:
    """`saved`: share of all prompts not timed. `dropped`: share of each kind that was dropped.
    `false_accepts`: share of losers and of candidates without a change accepted through
    confirmation. `winners`: share of winners accepted so."""

    rule: str
    candidates: int
    saved: float
    dropped: dict[str, float]
    false_accepts: float
    winners: float


def population(rng: np.random.Generator, count: int) -> list[tuple[str, Effect]]:
    """A third clear losers of 5 to 30 %, a third without a change, a third winners of 3 to 30 %;
    half of the first and last act on the draft (unequal by prompt), half on every step alike."""
    found = []
    for number in range(count):
        kind = (LOSER, SAME, WINNER)[number % 3]
        size = {
            LOSER: -rng.uniform(math.log(1.05), math.log(1.30)),
            SAME: 0.0,
            WINNER: rng.uniform(math.log(1.03), math.log(1.30)),
        }[kind]
        effect = mechanism(float(size)) if number % 2 else kernel(float(size))
        found.append((kind, NO_CHANGE if kind == SAME else effect))
    return found


def stopping(noise: Noise, candidates: int, *, seed: int = 0) -> list[StoppingFigures]:
    """Every rule on the same candidates, each with a placebo of its own."""
    rng = np.random.default_rng(seed)
    kinds, effects = map(list, zip(*population(rng, candidates), strict=True))
    bars = placebos(rng, noise, candidates)
    screens = cells(rng, noise, effects, candidates, 1).values
    confirms = cells(rng, noise, effects, candidates, LAUNCHES_CONFIRM).values
    would = [
        _accepted(screen, confirm, bar)
        for screen, confirm, bar in zip(screens, confirms, bars, strict=True)
    ]
    figures = []
    for name, rule in RULES.items():
        timed = [
            prompts_timed(screen[0, :, 0], bar, rule)
            for screen, bar in zip(screens, bars, strict=True)
        ]
        kept = [t == PROMPTS for t in timed]
        accepted = [k and w for k, w in zip(kept, would, strict=True)]
        figures.append(
            StoppingFigures(
                name,
                candidates,
                1.0 - sum(timed) / (candidates * PROMPTS),
                {
                    kind: 1.0 - _share(kept, [k == kind for k in kinds])
                    for kind in (LOSER, SAME, WINNER)
                },
                _share(accepted, [k != WINNER for k in kinds]),
                _share(accepted, [k == WINNER for k in kinds]),
            )
        )
    return figures


def log_bar(placebo: Placebo) -> float:
    """Floor and launch part: no one-launch measurement below it can be accepted."""
    return placebo.log_floor + t_quantile(0.975, placebo.spread.df) * placebo.spread.sd


def prompts_timed(values: Floats, placebo: Placebo, rule: Rule) -> int:
    """Prompts timed before `rule` drops the candidate; all of them where it does not. Asked before
    each prompt, as farm.bench.session does."""
    bar = log_bar(placebo)
    for count in range(FEWEST, len(values)):
        if rule(values[:count], bar):
            return count
    return len(values)


def _accepted(screen: Floats, confirm: Floats, placebo: Placebo) -> bool:
    found = log_interval(CellMeans(screen), launch=placebo.spread)
    return found.low > placebo.log_floor and confirms_at(confirm, placebo, 1)


def _share(flags: list[bool], among: list[bool]) -> float:
    return sum(f and a for f, a in zip(flags, among, strict=True)) / max(sum(among), 1)
