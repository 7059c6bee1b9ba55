"""Time spent dead costs no budget."""

from __future__ import annotations

import pytest

from farm.ledger import Unit
from farm.search.budget_clock import budget_clock, busy_seconds


def unit(started: float, ended: float | None) -> Unit:
    return Unit("d", "measure", "a", "done", 1, started, ended, None, None)


@pytest.mark.parametrize(
    ("spans", "seconds"),
    [
        ([], 0.0),
        ([(10, 30)], 20.0),
        ([(10, 30), (20, 40)], 30.0),
        ([(10, 100), (20, 40), (200, 210)], 100.0),
        ([(50, 60), (10, 20), (70, None)], 20.0),
    ],
)
def test_busy_seconds(spans: list[tuple[float, float | None]], seconds: float) -> None:
    assert busy_seconds([unit(*span) for span in spans]) == seconds


def test_the_clock_goes_on_where_the_units_ended() -> None:
    now = [1_000_000.0]
    clock = budget_clock(100.0, [unit(110, 130), unit(500_000, 500_040)], lambda: now[0])
    assert clock() == 160.0
    now[0] += 7
    assert clock() == 167.0
