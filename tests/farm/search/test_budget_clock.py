"""Time spent dead, or waiting for somebody else's timing, costs no budget."""

from __future__ import annotations

import pytest

from farm.ledger import Unit
from farm.search.budget_clock import budget_clock, busy_seconds


def unit(started: float, ended: float | None, waited_s: float | None = None) -> Unit:
    result = None if waited_s is None else {"status": "ok", "waited_s": waited_s}
    return Unit("d", "measure", "a", "done", 1, started, ended, result, None)


@pytest.mark.parametrize(
    ("spans", "seconds"),
    [
        ([], 0.0),
        ([(10, 30)], 20.0),
        ([(10, 30), (20, 40)], 30.0),
        ([(10, 100), (20, 40), (200, 210)], 100.0),
        ([(50, 60), (10, 20), (70, None)], 20.0),
        # Waits come first in their unit.
        ([(10, 30, 15.0)], 5.0),
        ([(10, 30, 0.0), (20, 50, 5.0)], 40.0),
        ([(10, 30, 18.0), (10, 50, 25.0)], 17.0),
        ([(10, 30, 99.0)], 0.0),
    ],
)
def test_busy_seconds(spans: list[tuple[float, ...]], seconds: float) -> None:
    assert busy_seconds([unit(*span) for span in spans]) == seconds


def test_the_clock_goes_on_where_the_units_ended() -> None:
    now = [1_000_000.0]
    clock = budget_clock(100.0, [unit(110, 130), unit(500_000, 500_040)], lambda: now[0])
    assert clock() == 160.0
    now[0] += 7
    assert clock() == 167.0


def test_the_clock_stands_still_for_what_was_waited() -> None:
    now = [1_000.0]
    clock = budget_clock(1_000.0, [], lambda: now[0])
    now[0] += 300.0
    clock.excuse(240.0)
    assert clock() == 1_060.0
    now[0] += 20.0
    clock.excuse(0.0)
    assert clock() == 1_080.0
    now[0] += 80.0
    clock.excuse(80.0)
    assert clock() == 1_080.0


def test_units_that_waited_side_by_side_are_excused_once() -> None:
    now = [0.0]
    clock = budget_clock(0.0, [], lambda: now[0])
    now[0] = 160.0
    clock.excuse(100.0)
    now[0] = 165.0
    clock.excuse(100.0)
    # 60 of 160 s were the first one's work; the five seconds since count as the second's wait.
    assert clock() == 60.0
