"""Names of estimators -> what builds their statistic. A new one is one file and one line."""

from __future__ import annotations

from collections.abc import Callable

from farm.bench.errors import MeasurementError
from farm.bench.estimators import (
    block_throughput,
    mean_throughput,
    position_minimum,
    quiet_time,
    slice_median,
    step_kind_quantile,
)
from farm.bench.estimators.cells import Cells
from farm.statistics.statistic import Statistic

Estimator = Callable[[Cells], Statistic]

ESTIMATORS: dict[str, Estimator] = {
    "mean_throughput": mean_throughput.statistic,
    "slice_median": slice_median.statistic,
    "position_minimum": position_minimum.statistic,
    "position_quartile": position_minimum.quartile_statistic,
    "step_kind_quantile": step_kind_quantile.statistic,
    "quiet_time": quiet_time.statistic,
    "block_throughput": block_throughput.statistic,
}


def get_estimator(name: str) -> Estimator:
    """The estimator of that name.

    Raises:
        MeasurementError: unknown; lists the names.
    """
    if name not in ESTIMATORS:
        raise MeasurementError(
            f"no estimator is named {name!r} (measurement.estimator)",
            f"Known: {', '.join(sorted(ESTIMATORS))}.",
        )
    return ESTIMATORS[name]
