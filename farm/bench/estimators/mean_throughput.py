"""Mean decode throughput: output tokens / running decode seconds, paired by prompt.

The plainest estimator and the one every other is reported beside; contention enters in full.
"""

from __future__ import annotations

import math

from farm.bench.estimators.cells import Cell, Cells, Side
from farm.statistics.statistic import CellMeans


def statistic(cells: Cells) -> CellMeans:
    """Mean over prompts of the log ratio of tokens per second (all repeats summed)."""
    return cells.means(_log_ratio)


def _log_ratio(cell: Cell) -> float:
    return math.log(_rate(cell.numerator) / _rate(cell.denominator))


def _rate(side: Side) -> float:
    steps = side.repeats.values()
    return sum(s.total_tokens for s in steps) / sum(s.seconds for s in steps)
