"""Cells for a statistic that pools its prompts: jackknife pseudo-values within each launch."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from farm.statistics.statistic import Components, Floats


class Weighable(Protocol):
    """The part of a `Statistic` the jackknife needs."""

    @property
    def present(self) -> NDArray[np.bool_]: ...

    def evaluate(self, weights: Floats) -> Components: ...


def jackknife_cells(statistic: Weighable) -> Floats:
    """Log-ratios of each (launch, prompt) as pseudo-values (Tukey), (launches, prompts, 3), NaN
    where absent or where a launch has one prompt; equal to the cells for a mean of cells."""
    present = statistic.present
    cells = np.full((*present.shape, 3), np.nan)
    for row in range(present.shape[0]):
        alone = np.zeros(present.shape)
        alone[row] = present[row]
        n = int(present[row].sum())
        if n < 2:
            continue
        whole = np.asarray(statistic.evaluate(alone))
        for column in np.flatnonzero(present[row]):
            alone[row, column] = 0.0
            cells[row, column] = n * whole - (n - 1) * np.asarray(statistic.evaluate(alone))
            alone[row, column] = 1.0
    return cells
