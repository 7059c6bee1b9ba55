"""A campaign's clock: it stands still while no process runs the campaign."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from farm.ledger import Unit


def busy_seconds(units: Sequence[Unit]) -> float:
    """Seconds covered by finished units; those that ran side by side count once."""
    spans = sorted((unit.started, unit.ended) for unit in units if unit.ended is not None)
    total, until = 0.0, float("-inf")
    for start, end in spans:
        total += max(0.0, end - max(start, until))
        until = max(until, end)
    return total


def budget_clock(
    created: float, units: Sequence[Unit], now: Callable[[], float] = time.time
) -> Callable[[], float]:
    """Unix seconds less the time the campaign lay dead, so that a resume a day after a kill has
    the rest of its budget: at this call it reads `created` plus what the units took."""
    paused = now() - created - busy_seconds(units)
    return lambda: now() - paused
