"""Quiet time by position: each step's lowest time over repeats of its prompt, summed.

Contention only adds, and a deterministic engine takes the same steps every time, so step i's
minimum over repeats approaches its time on a quiet machine; unlike a pooled quantile it does not
favour an engine whose steps differ in cost. Biased towards 1 while repeats are too few to reach the
floor. Needs several repeats; with one it is the plain mean.
"""

from __future__ import annotations

import math
from collections import defaultdict
from functools import partial

import numpy as np

from farm.bench.estimators.cells import Cell, Cells, Side
from farm.bench.steps import DecodeSteps
from farm.statistics.statistic import CellMeans


def statistic(cells: Cells) -> CellMeans:
    """Mean over prompts of the log ratio of quiet throughput, lowest repeat a step."""
    return cells.means(partial(_log_ratio, share=0.0))


def quartile_statistic(cells: Cells) -> CellMeans:
    """The same with the lower quartile over repeats: less moved by one early timestamp."""
    return cells.means(partial(_log_ratio, share=0.25))


def _log_ratio(cell: Cell, share: float) -> float:
    return math.log(quiet_rate(cell.numerator, share) / quiet_rate(cell.denominator, share))


def quiet_rate(side: Side, share: float) -> float:
    """Tokens per quiet second of the answer most repeats gave (repeats that differ are left out:
    their steps are not the same work)."""
    alike: dict[tuple[int, ...], list[DecodeSteps]] = defaultdict(list)
    for steps in side.repeats.values():
        alike[tuple(int(t) for t in steps.tokens)].append(steps)
    sequence, group = max(alike.items(), key=lambda item: len(item[1]))
    gaps = np.stack([steps.gap_s for steps in group])
    clean = np.stack([steps.clean for steps in group])
    # A straddled step lost its caches; it counts only where every repeat was straddled.
    gaps = np.where(clean | ~clean.any(axis=0), gaps, np.nan)
    low = np.nanquantile(gaps, share, axis=0)
    return sum(sequence) / float(low.sum())
