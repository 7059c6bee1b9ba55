"""Does an arm answer a prompt faster once it has seen it? Repeats against first runs.

Caches are flushed between prompts, so an arm that gains on repeats what the other does not has
remembered something across requests. Its speed on prompts it has seen is then no speed at all.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from typing import Any

from farm.bench.errors import MeasurementError
from farm.bench.estimators.cells import Cell, Cells, Side, cells_of
from farm.bench.recording import Recording
from farm.statistics.ratio_interval import LogInterval, log_interval

SUSPICIOUS_GAIN = 0.05


@dataclass(frozen=True)
class Memoisation:
    """Speed on repeats over speed on first runs, the numerator's over the denominator's, with its
    95 % interval over `prompts` repeated prompts."""

    gain: float
    low: float
    high: float
    prompts: int

    @property
    def remembers(self) -> bool:
        """The whole interval lies above the suspicious gain."""
        return self.low > 1.0 + SUSPICIOUS_GAIN

    @property
    def excluded(self) -> bool:
        """No interval around "no gain": the repeats cannot be counted as further first runs."""
        return not self.low <= 1.0 <= self.high

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def memoisation(recording: Recording, numerator: str, denominator: str) -> Memoisation | None:
    """The gain on repeats; None: fewer than two prompts were repeated in both arms, or they were
    asked in blocks, which hold every prompt once."""
    if any(run.block is not None for run in recording.runs):
        return None
    try:
        found = gain_on_repeats(cells_of(recording, numerator, denominator))
    except MeasurementError:
        return None
    if found is None:
        return None
    gain, low, high = map(math.exp, (found.components.ratio, found.low, found.high))
    return Memoisation(gain, low, high, found.prompts)


def first_answers(recording: Recording) -> Recording:
    """The recording with each arm's first answer to each prompt of each launch only."""
    first: dict[tuple[str, int, int], int] = {}
    for run in recording.runs:
        place = run.arm, run.launch, run.request
        first[place] = min(run.repeat, first.get(place, run.repeat))
    return replace(
        recording,
        runs=tuple(
            run for run in recording.runs if run.repeat == first[run.arm, run.launch, run.request]
        ),
    )


def gain_on_repeats(cells: Cells) -> LogInterval | None:
    """Log of the numerator's gain (decode tokens/s, repeats over first run) over the
    denominator's, which cancels what the machine did meanwhile. None: fewer than two prompts were
    repeated."""
    try:
        return log_interval(cells.means(_log_gain), resamples=500)
    except ValueError:
        return None


def _log_gain(cell: Cell) -> float:
    return _gain(cell.numerator) - _gain(cell.denominator)


def _gain(side: Side) -> float:
    later = [s for repeat, s in side.repeats.items() if repeat > 0]
    if 0 not in side.repeats or not later:
        return math.nan
    first = side.repeats[0]
    rate = sum(s.total_tokens for s in later) / sum(s.seconds for s in later)
    return math.log(rate / (first.total_tokens / first.seconds))


def memoisation_note(cells: Cells, arm: str) -> str | None:
    """A sentence when the whole interval lies above `SUSPICIOUS_GAIN`."""
    found = gain_on_repeats(cells)
    if found is None or found.low <= math.log1p(SUSPICIOUS_GAIN):
        return None
    return (
        f"{arm} gains x{math.exp(found.components.ratio):.2f} (at least "
        f"x{math.exp(found.low):.2f}) on prompts it has seen: does it remember answers?"
    )
