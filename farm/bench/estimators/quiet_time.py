"""The default estimator: what the machine would show if nothing else ran.

The name settings use; which estimator stands behind it is the study's choice (docs/measuring.md).
"""

from __future__ import annotations

from farm.bench.estimators.cells import Cells
from farm.bench.estimators.slice_median import statistic as _chosen
from farm.statistics.statistic import CellMeans


def statistic(cells: Cells) -> CellMeans:
    """The chosen estimator's statistic."""
    return _chosen(cells)
