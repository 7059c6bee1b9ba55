"""A log-ratio as a function of how often each (launch, prompt) cell is counted.

Every estimator becomes a `Statistic`, so one bootstrap, one jackknife and one analysis of variance
serve them all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


class Components(NamedTuple):
    """Natural logarithms; `ratio = tau + step`. Positive means that the numerator is faster."""

    ratio: float
    tau: float
    step: float


class Statistic(Protocol):
    """`present` (launches, prompts) says where both arms have data; `evaluate` takes weights of
    that shape (0 = left out, 2 = counted twice; absent cells are never read)."""

    @property
    def present(self) -> NDArray[np.bool_]: ...

    def evaluate(self, weights: Floats) -> Components: ...


@dataclass(frozen=True)
class CellMeans:
    """The weighted mean of one log-ratio a cell: `values` (launches, prompts, 3), NaN = absent.

    Launches count equally, whatever the number of prompts each has.
    """

    values: Floats

    @property
    def present(self) -> NDArray[np.bool_]:
        return ~np.isnan(self.values[:, :, 0])

    def evaluate(self, weights: Floats) -> Components:
        w = np.where(self.present, weights, 0.0)
        sums = np.einsum("lp,lpc->lc", w, np.nan_to_num(self.values))
        counts = w.sum(axis=1)
        used = counts > 0
        mean = (sums[used] / counts[used, None]).mean(axis=0)
        return Components(float(mean[0]), float(mean[1]), float(mean[2]))
