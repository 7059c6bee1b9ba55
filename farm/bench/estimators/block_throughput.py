"""c > 1: output tokens a second over a fixed block of prompts, paired by block.

The unit is a block in a launch: requests inside one share their batch and are not independent.
`mean_throughput` beside it is each request's own decode rate. Accept lengths are counted over the
whole block.
"""

from __future__ import annotations

import math

from farm.bench.errors import MeasurementError
from farm.bench.estimators.cells import Cell, Cells, Side
from farm.statistics.statistic import CellMeans


def statistic(cells: Cells) -> CellMeans:
    """Mean over blocks of the log ratio of steady throughput.

    Raises:
        MeasurementError: the recording holds no steady load.
    """
    if all(
        c.numerator.window is None or c.denominator.window is None for c in cells.cells.values()
    ):
        raise MeasurementError(
            "the recording has no block with steady load of both arms",
            "Measure in mode blocks, with more prompts a block than requests at a time",
        )
    return cells.means(_log_ratio)


def _log_ratio(cell: Cell) -> float:
    top, bottom = _rate(cell.numerator), _rate(cell.denominator)
    return math.log(top / bottom) if top and bottom else math.nan


def _rate(side: Side) -> float:
    """Tokens a second; 0 without steady load."""
    return side.window.tokens / side.window.seconds if side.window else 0.0
