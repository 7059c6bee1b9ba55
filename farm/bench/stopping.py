"""Sequential early stop: candidates that cannot be accepted any more are not timed further.

The rule and its reasons are in farm.statistics.early_drop; this is its place in a measurement.
Winners are never stopped early: their tokens are needed for token forcing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from farm.bench.errors import MeasurementError
from farm.bench.estimators import get_estimator
from farm.bench.estimators.cells import cells_of
from farm.bench.recording import Recording
from farm.statistics.early_drop import FEWEST, hopeless, upper_bound

LOSER = "clear loser"
OUT_OF_REACH = "out of reach"


@dataclass(frozen=True)
class SequentialStop:
    """A `StopRule`: called after every prompt, says why to stop or None.

    `bar` is the least ratio that could still be accepted: the A/A floor times what the spread
    between launches takes off a one-launch measurement.
    """

    numerator: str = "candidate"
    denominator: str = "stock"
    estimator: str = "quiet_time"
    bar: float = 1.0

    def __call__(self, recording: Recording) -> str | None:
        if sum(run.arm == self.numerator for run in recording.runs) < FEWEST:
            return None
        try:
            cells = cells_of(recording, self.numerator, self.denominator)
        except MeasurementError:
            return None
        logs = get_estimator(self.estimator)(cells).cells()[:, :, 0]
        logs = logs[~np.isnan(logs)]
        if not hopeless(logs, math.log(self.bar)):
            return None
        upper = upper_bound(logs)
        found = f"x{math.exp(float(logs.mean())):.3f}, upper bound {math.exp(upper):.3f}"
        if upper < 0.0:
            return f"{LOSER}: {found} below 1"
        return f"{OUT_OF_REACH}: {found} below the {self.bar:.3f} that could be accepted"
