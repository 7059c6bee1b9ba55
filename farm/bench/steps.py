"""From arrivals to decode steps: what each step cost and committed, prefill left out.

Decode time runs from the first token to the last; its tokens are those after the first event.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from farm.bench.recording import Recording, Run
from farm.bench.running_clock import slice_of

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class DecodeSteps:
    """The decode steps of one run, arrays of equal length (steps,).

    `gap_s`: running seconds; a pause inside a step is subtracted. `tokens`: committed. `clean`:
    no pause fell inside. `turn`: the slice turn in which the step ended. `rows`: rows the engine
    says it verified, 0 where it says nothing.
    """

    gap_s: Floats
    tokens: Ints
    clean: NDArray[np.bool_]
    turn: Ints
    rows: Ints

    @property
    def count(self) -> int:
        return len(self.gap_s)

    @property
    def total_tokens(self) -> int:
        return int(self.tokens.sum())

    @property
    def seconds(self) -> float:
        return float(self.gap_s.sum())


def decode_steps(run: Run) -> DecodeSteps:
    """Steps of a run; events that brought no token are no steps (their time goes to the next)."""
    tokens = np.asarray(run.tokens, dtype=np.int64)
    keep = np.concatenate(([True], np.diff(tokens) > 0))
    running = np.asarray(run.running_s)[keep]
    wall = np.asarray(run.wall_s)[keep]
    if run.slices:
        place = slice_of(wall, [s.start_s for s in run.slices])
        turns = np.asarray([s.turn for s in run.slices], dtype=np.int64)
        turn = turns[np.maximum(place, 0)][1:]
        clean = place[1:] == place[:-1]
    else:
        turn = np.zeros(len(running) - 1, dtype=np.int64)
        clean = np.ones(len(running) - 1, dtype=np.bool_)
    return DecodeSteps(np.diff(running), np.diff(tokens[keep]), clean, turn, _rows(run, keep))


def _rows(run: Run, keep: NDArray[np.bool_]) -> Ints:
    steps = int(keep.sum()) - 1
    if run.step_rows is None or len(run.step_rows) != len(keep) - 1:
        return np.zeros(steps, dtype=np.int64)
    return np.asarray(run.step_rows, dtype=np.int64)[keep[1:]]


def accept_length(runs: list[Run]) -> float:
    """Tokens per decode step, bonus token included, counted from arrivals. NaN: no decode step."""
    steps = [decode_steps(run) for run in runs]
    count = sum(s.count for s in steps)
    return sum(s.total_tokens for s in steps) / count if count else float("nan")


def step_claims(recording: Recording) -> list[str]:
    """Where an engine's own step counter disagrees with its events by more than one step.

    A coalescing server (fewer events than steps) makes counted accept lengths too long; an engine
    that claims fewer steps than it streamed makes its own claim too long.
    """
    notes = []
    for arm in recording.arms():
        runs = [r for r in recording.runs if r.arm == arm and r.verify_steps]
        events = sum(decode_steps(r).count for r in runs)
        claimed = sum(r.verify_steps or 0 for r in runs)
        if runs and abs(events - claimed) > len(runs):
            notes.append(
                f"{arm}: {events} decode events but {claimed} verify steps claimed; "
                "accept length is counted from events"
            )
    return notes
