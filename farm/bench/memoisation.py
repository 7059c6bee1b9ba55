"""Does an arm answer a prompt faster once it has seen it? Repeats against first runs.

Caches are flushed between prompts, so a gain on repeats that the other arm does not show is
something remembered across requests: a reason to look, not a verdict.
"""

from __future__ import annotations

import math

from farm.bench.estimators.cells import Cell, Cells, Side
from farm.statistics.ratio_interval import LogInterval, log_interval

SUSPICIOUS_GAIN = 0.05


def gain_on_repeats(cells: Cells) -> LogInterval | None:
    """Log of the numerator's gain (decode tokens/s, repeats over first run) over the
    denominator's, which cancels what the machine did meanwhile. None: fewer than two prompts were
    repeated."""
    try:
        return log_interval(cells.means(_log_gain), resamples=500)
    except ValueError:
        return None


def _log_gain(cell: Cell) -> float:
    return _gain(cell.numerator) - _gain(cell.denominator)


def _gain(side: Side) -> float:
    later = [s for repeat, s in side.repeats.items() if repeat > 0]
    if 0 not in side.repeats or not later:
        return math.nan
    first = side.repeats[0]
    rate = sum(s.total_tokens for s in later) / sum(s.seconds for s in later)
    return math.log(rate / (first.total_tokens / first.seconds))


def memoisation_note(cells: Cells, arm: str) -> str | None:
    """A sentence when the whole interval lies above `SUSPICIOUS_GAIN`."""
    found = gain_on_repeats(cells)
    if found is None or found.low <= math.log1p(SUSPICIOUS_GAIN):
        return None
    return (
        f"{arm} gains x{math.exp(found.components.ratio):.2f} (at least "
        f"x{math.exp(found.low):.2f}) on prompts it has seen: does it remember answers?"
    )
