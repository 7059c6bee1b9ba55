"""A campaign's clock: it stands still while no process runs the campaign, and while the campaign
waits for somebody else's timing to end."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from farm.ledger import Unit


def busy_seconds(units: Sequence[Unit]) -> float:
    """Seconds covered by finished units, less what each of them waited before it began; those
    that ran side by side count once."""
    spans = sorted(
        (min(unit.started + _waited(unit), unit.ended), unit.ended)
        for unit in units
        if unit.ended is not None
    )
    total, until = 0.0, float("-inf")
    for start, end in spans:
        total += max(0.0, end - max(start, until))
        until = max(until, end)
    return total


def _waited(unit: Unit) -> float:
    """Its outcome's `waited_s`; units of a ledger written before it was kept have none."""
    result = unit.result
    return float(result.get("waited_s", 0.0)) if isinstance(result, dict) else 0.0


class BudgetClock:
    """Call it for unix seconds less those that cost no budget."""

    def __init__(self, now: Callable[[], float], paused_s: float) -> None:
        self._now = now
        self._paused_s = paused_s
        self._excused_at = now()

    def __call__(self) -> float:
        return self._now() - self._paused_s

    def excuse(self, waited_s: float) -> None:
        """A unit has ended that waited so long for somebody else. Units that waited side by side
        are excused together at most the time since the last excuse."""
        if waited_s <= 0.0:
            return
        now = self._now()
        self._paused_s += min(waited_s, now - self._excused_at)
        self._excused_at = now


def budget_clock(
    created: float, units: Sequence[Unit], now: Callable[[], float] = time.time
) -> BudgetClock:
    """The clock of a campaign that goes on now, so that a resume a day after a kill has the rest of
    its budget: at this call it reads `created` plus what the units took."""
    return BudgetClock(now, now() - created - busy_seconds(units))
