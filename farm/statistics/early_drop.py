"""When to stop timing a candidate that cannot be accepted any more.

After every prompt the upper 95 % bound of the mean log-ratio so far (paired by prompt, Student's t,
one-sided) is held against the bar: the least ratio a finished measurement could be accepted with.
Acceptance needs point - half-width > floor, and the half-width is never less than the launch part,
so below floor x exp(launch part) nothing can be accepted, whatever the remaining prompts add to
precision.

The bound is looked at after every prompt and not corrected for that: it can only ever drop a
candidate, so false accepts cannot come of it, and what it costs is a winner lost now and then. The
bound was chosen over Wilcoxon's signed-rank test by simulation (farm.statistics.proof.stopping).
"""

from __future__ import annotations

import math

import numpy as np

from farm.statistics.statistic import Floats
from farm.statistics.student_t import t_quantile

CONFIDENCE = 0.95
FEWEST = 4


def upper_bound(values: Floats) -> float:
    """One-sided upper bound (`CONFIDENCE`) of the mean of `values`, one log-ratio a prompt;
    infinite below two."""
    n = len(values)
    if n < 2:
        return math.inf
    t = t_quantile(CONFIDENCE, n - 1)
    return float(np.mean(values) + t * np.std(values, ddof=1) / math.sqrt(n))


def hopeless(values: Floats, log_bar: float) -> bool:
    """Whether prompts enough are in and the upper bound lies below the bar (a logarithm)."""
    return len(values) >= FEWEST and upper_bound(values) < log_bar
