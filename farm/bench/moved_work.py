"""Is decoding faster only because its work is done before the first token?

The ratio leaves prefill out, so an engine could compute tokens of the answer before it sends the
first one and hand them out later as if they had just been decoded. The time shows up where it went:
each prompt's first token comes later than stock's, by about as much as decoding seems to save.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from farm.bench.recording import Recording
from farm.statistics.ratio_interval import log_interval
from farm.statistics.statistic import CellMeans

LATER = 1.25
SHARE = 0.5
# Of stock's decoding: who saves less gains nothing by it, and on a busy machine first tokens of a
# few milliseconds come late by themselves.
GAIN = 0.02


@dataclass(frozen=True)
class MovedWork:
    """Time to the first token over stock's (95 % interval), and seconds over all answers: `later_s`
    that first tokens came later, `saved_s` that decoding took less than stock's `decoding_s`."""

    later: float
    low: float
    high: float
    later_s: float
    saved_s: float
    decoding_s: float

    @property
    def moved(self) -> bool:
        """Decoding gained, and first tokens are surely later and eat half of what it saved."""
        gained = self.saved_s > GAIN * self.decoding_s
        return gained and self.low > LATER and self.later_s > SHARE * self.saved_s

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def moved_work(recording: Recording, numerator: str, denominator: str) -> MovedWork | None:
    """None: fewer than two prompts that both arms answered one at a time (concurrent requests wait
    for each other's prefill)."""
    first: dict[tuple[str, int, int], list[float]] = defaultdict(list)
    decode: dict[tuple[str, int, int], list[float]] = defaultdict(list)
    for run in recording.runs:
        if run.block is None:
            place = run.arm, run.launch, run.request
            first[place].append(run.ttft_s)
            decode[place].append(run.running_s[-1] - run.running_s[0])
    launches = 1 + max((run.launch for run in recording.runs), default=0)
    values = np.full((launches, len(recording.requests), 3), np.nan)
    later_s = saved_s = decoding_s = 0.0
    for arm, launch, request in first:
        ours, theirs = (numerator, launch, request), (denominator, launch, request)
        if arm != numerator or theirs not in first:
            continue
        mine, stocks = _mean(first[ours]), _mean(first[theirs])
        if mine > 0.0 and stocks > 0.0:
            values[launch, request] = math.log(mine / stocks)
            later_s += mine - stocks
            saved_s += _mean(decode[theirs]) - _mean(decode[ours])
            decoding_s += _mean(decode[theirs])
    try:
        found = log_interval(CellMeans(values), resamples=500)
    except ValueError:
        return None
    ratio, low, high = map(math.exp, (found.components.ratio, found.low, found.high))
    return MovedWork(ratio, low, high, later_s, saved_s, decoding_s)


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)
