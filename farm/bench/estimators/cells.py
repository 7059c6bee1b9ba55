"""The table estimators work on: for every (launch, prompt) the steps of both arms, by repeat."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from farm.bench.errors import MeasurementError
from farm.bench.estimators.block_window import Window, steady_window
from farm.bench.recording import Recording, Run
from farm.bench.steps import DecodeSteps, decode_steps
from farm.statistics.statistic import CellMeans


@dataclass(frozen=True)
class Side:
    """One arm's runs of one prompt in one launch: repeat -> steps; of a block of concurrent
    requests every request's, and its steady load. Never empty in a cell."""

    repeats: Mapping[int, DecodeSteps]
    window: Window | None = None

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
    """The table of two arms of a (merged) recording; requests asked concurrently make one cell a
    block, in the column of its first prompt.

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
    column = _columns(recording)
    groups: dict[tuple[int, int], dict[str, list[Run]]] = {}
    for run in recording.runs:
        if run.arm in (numerator, denominator):
            place = run.launch, column[run.launch, run.request]
            groups.setdefault(place, {}).setdefault(run.arm, []).append(run)
    slots = int(recording.plan.get("concurrency", 1))
    sides = {
        place: {arm: _side(runs, slots) for arm, runs in arms.items()}
        for place, arms in groups.items()
    }
    cells = {
        place: Cell(arms[numerator], arms[denominator])
        for place, arms in sides.items()
        if all(arm in arms and arms[arm].repeats for arm in (numerator, denominator))
    }
    if not cells:
        raise MeasurementError(
            f"no prompt has decode steps of both {numerator} and {denominator}",
            "Give prompts whose answers have at least two tokens.",
        )
    launches = 1 + max(launch for launch, _ in cells)
    return Cells((launches, len(recording.requests)), cells)


def _columns(recording: Recording) -> dict[tuple[int, int], int]:
    """(launch, request) -> column: the request itself, or its block's first."""
    first: dict[tuple[int, int], int] = {}
    for run in recording.runs:
        if run.block is not None:
            block = run.launch, run.block
            first[block] = min(first.get(block, run.request), run.request)
    return {
        (run.launch, run.request): run.request
        if run.block is None
        else first[run.launch, run.block]
        for run in recording.runs
    }


def _side(runs: list[Run], slots: int) -> Side:
    """`repeats` is empty where no run has a decode step."""
    steps = [(run, decode_steps(run)) for run in runs]
    timed = [(run, s) for run, s in steps if s.count and s.seconds > 0]
    if runs[0].block is None:
        return Side({run.repeat: s for run, s in timed})
    windows = [
        steady_window([run for run in runs if run.repeat == repeat], slots)
        for repeat in {run.repeat for run in runs}
    ]
    steady = [window for window in windows if window is not None]
    window = None
    if steady:
        window = Window(sum(w.tokens for w in steady), sum(w.seconds for w in steady))
    return Side({number: s for number, (_, s) in enumerate(timed)}, window)
