"""Wall seconds to running seconds: the clock of an arm that is stopped now and then."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def running_seconds(
    times: Sequence[float] | Floats, intervals: Sequence[tuple[float, float]]
) -> Floats:
    """Seconds the arm had been running at each wall time.

    Args:
        times: wall seconds, any order.
        intervals: [resumed, paused) wall seconds, ascending, not overlapping.

    Returns:
        Array of len(times). A time inside a pause (an event still on its way to the client when
        the arm was stopped) gets the running time at the pause, so pauses never enter a gap.
    """
    knots_wall: list[float] = []
    knots_running: list[float] = []
    total = 0.0
    for start, end in intervals:
        knots_wall += [start, end]
        knots_running += [total, total + (end - start)]
        total += end - start
    return np.interp(np.asarray(times, dtype=np.float64), knots_wall, knots_running)


def slice_of(times: Sequence[float] | Floats, starts: Sequence[float]) -> NDArray[np.int64]:
    """Index of the last slice that had started at each time (-1: before the first)."""
    return (np.searchsorted(np.asarray(starts), np.asarray(times), side="right") - 1).astype(
        np.int64
    )
