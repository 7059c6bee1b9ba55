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
    """`present` (launches, prompts) says where both arms have data. Weights have that shape (0 =
    left out, 2 = counted twice; absent cells are never read)."""

    @property
    def present(self) -> NDArray[np.bool_]: ...

    def evaluate(self, weights: Floats) -> Components: ...

    def evaluate_each(self, weights: Floats) -> Floats:
        """`evaluate` of each of (draws, launches, prompts): (draws, 3)."""
        ...

    def cells(self) -> Floats:
        """The log-ratio of each cell, (launches, prompts, 3), NaN = absent."""
        ...


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
        return Components(*self.evaluate_each(weights[None])[0].tolist())

    def evaluate_each(self, weights: Floats) -> Floats:
        present = self.present[:, :, None]
        # A fourth column of ones counts along with the three sums.
        values = np.concatenate([np.where(present, self.values, 0.0), present], axis=2)
        sums = np.matmul(weights.transpose(1, 0, 2), values)
        counts = sums[:, :, 3]
        means = sums[:, :, :3] / np.where(counts > 0, counts, 1.0)[:, :, None]
        found: Floats = means.sum(axis=0) / (counts > 0).sum(axis=0)[:, None]
        return found

    def cells(self) -> Floats:
        return self.values
