"""Median over neighbouring slices of the log ratio of steps per second, times the counted ratio of
accept lengths.

Slices of the same turn run within a few tenths of a second of each other, so slow drift cancels in
each pair and the median ignores the pairs in which something else woke up. A slice's rate is the
steps that ended in it over the running time since the last step before it, so a step that straddles
a pause is counted once, without the pause. Without slices a whole answer is one slice.
"""

from __future__ import annotations

import math

import numpy as np

from farm.bench.estimators.cells import Cell, Cells
from farm.bench.steps import DecodeSteps
from farm.statistics.statistic import CellMeans


def statistic(cells: Cells) -> CellMeans:
    """Mean over prompts of the per-prompt median."""
    return cells.means(_log_ratio)


def _log_ratio(cell: Cell) -> float:
    logs: list[float] = []
    for repeat in cell.numerator.repeats.keys() & cell.denominator.repeats.keys():
        top = turn_rates(cell.numerator.repeats[repeat])
        bottom = turn_rates(cell.denominator.repeats[repeat])
        logs += [math.log(top[turn] / bottom[turn]) for turn in top.keys() & bottom.keys()]
    return float(np.median(logs)) + cell.log_tau if logs else math.nan


def turn_rates(steps: DecodeSteps) -> dict[int, float]:
    """Steps per running second by slice turn; turns in which no step ended are absent."""
    rates = {}
    for turn in np.unique(steps.turn[steps.turn >= 0]):
        inside = steps.turn == turn
        seconds = float(steps.gap_s[inside].sum())
        if seconds > 0:
            rates[int(turn)] = float(inside.sum()) / seconds
    return rates
