"""The table estimators work on: for every (launch, prompt) the steps of both arms, by repeat."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from farm.bench.errors import MeasurementError
from farm.bench.recording import Recording
from farm.bench.steps import DecodeSteps, decode_steps
from farm.statistics.statistic import CellMeans


@dataclass(frozen=True)
class Side:
    """One arm's runs of one prompt in one launch: repeat -> steps. Never empty."""

    repeats: Mapping[int, DecodeSteps]

    @property
    def accept_length(self) -> float:
        """Tokens per step over all repeats."""
        steps = self.repeats.values()
        return sum(s.total_tokens for s in steps) / sum(s.count for s in steps)


@dataclass(frozen=True)
class Cell:
    """Both arms on one prompt in one launch."""

    numerator: Side
    denominator: Side

    @property
    def log_tau(self) -> float:
        return math.log(self.numerator.accept_length / self.denominator.accept_length)


@dataclass(frozen=True)
class Cells:
    """(launch, prompt) -> Cell; `shape` is (launches, prompts)."""

    shape: tuple[int, int]
    cells: Mapping[tuple[int, int], Cell]

    def means(self, log_ratio: Callable[[Cell], float]) -> CellMeans:
        """A statistic that averages one log speed ratio a cell (NaN leaves the cell out)."""
        values = np.full((*self.shape, 3), np.nan)
        for place, cell in self.cells.items():
            ratio = log_ratio(cell)
            if math.isfinite(ratio):
                values[place] = ratio, cell.log_tau, ratio - cell.log_tau
        return CellMeans(values)


def cells_of(recording: Recording, numerator: str, denominator: str) -> Cells:
    """The table of two arms of a (merged) recording.

    Runs without a decode step (one-token answers) carry no decode time and are left out.

    Raises:
        MeasurementError: an arm is not in the recording, or no prompt has decode steps of both.
    """
    for arm in (numerator, denominator):
        if not any(run.arm == arm for run in recording.runs):
            raise MeasurementError(
                f"the recording has no runs of arm {arm!r}",
                f"It has: {', '.join(recording.arms()) or 'none'}.",
            )
    sides: dict[tuple[int, int], dict[str, dict[int, DecodeSteps]]] = {}
    for run in recording.runs:
        steps = decode_steps(run)
        if run.arm in (numerator, denominator) and steps.count and steps.seconds > 0:
            cell = sides.setdefault((run.launch, run.request), {})
            cell.setdefault(run.arm, {})[run.repeat] = steps
    cells = {
        place: Cell(Side(arms[numerator]), Side(arms[denominator]))
        for place, arms in sides.items()
        if numerator in arms and denominator in arms
    }
    if not cells:
        raise MeasurementError(
            f"no prompt has decode steps of both {numerator} and {denominator}",
            "Give prompts whose answers have at least two tokens.",
        )
    launches = 1 + max(launch for launch, _ in cells)
    return Cells((launches, len(recording.requests)), cells)
