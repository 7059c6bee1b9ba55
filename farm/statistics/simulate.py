"""Recordings with a known truth: synthetic steps on a synthetically contended machine.

For checking estimators (coverage, false "faster") where the truth is known, and the clock is not
real. The sizes of drift, contention and launch effects are those measured on the shared two-core
machine of docs/measuring.md. What it leaves out: prefill, caches, and contention that prefers one
arm.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from engines.answers import Answer, GenerationRequest
from farm.bench.recording import PREFILL_TURN, Recording, run_from_answer

_GRID_S = 0.002
_Spans = dict[str, list[tuple[int, float, float]]]


@dataclass(frozen=True)
class Noise:
    """The machine. Speed is 1 / (drift x contention).

    `drift_sd`, `drift_s`: standard deviation of log speed and its correlation time. `busy_factor`:
    how much longer a step takes while something else runs; `busy_s`, `idle_s`: mean lengths of
    those states. `jitter`: log sd of one step. `launch_sd`: log sd of a launch's speed.
    `client_s`: mean lateness of a timestamp. `resume_s`: cost of being continued after a pause.
    """

    drift_sd: float = 0.15
    drift_s: float = 30.0
    busy_factor: float = 1.0
    busy_s: float = 0.5
    idle_s: float = 0.5
    jitter: float = 0.02
    launch_sd: float = 0.0
    client_s: float = 0.0003
    resume_s: float = 0.001


QUIET = Noise(jitter=0.05, busy_factor=1.6, busy_s=0.1, idle_s=0.6)
NOISY = Noise(drift_sd=0.2, busy_factor=2.5, busy_s=0.35, idle_s=0.35, jitter=0.04)
STILL = Noise(drift_sd=0.0, jitter=0.0, client_s=0.0, resume_s=0.0)


@dataclass(frozen=True)
class SimulatedArm:
    """`step_s`: seconds of a full verify step on the still machine. `accept`: probabilities of
    committing 1, 2, ... tokens. `skip`: share of one-token steps that skip the draft and cost
    `skip_cost` of a full one."""

    step_s: float = 0.033
    accept: tuple[float, ...] = (0.62, 0.2, 0.08, 0.04, 0.02, 0.01, 0.01, 0.02)
    skip: float = 0.3
    skip_cost: float = 0.92

    def slower(self, share: float) -> SimulatedArm:
        """The same engine with every step `share` longer."""
        return replace(self, step_s=self.step_s * (1.0 + share))


@dataclass(frozen=True)
class Simulation:
    """A recording and the log speed ratio it was made from (launch effects not included)."""

    recording: Recording
    truth: float


class _Machine:
    """Capacity delivered by each wall time, on a grid, extended as needed."""

    def __init__(self, noise: Noise, rng: np.random.Generator) -> None:
        self.noise, self.rng = noise, rng
        self.work: NDArray[np.float64] = np.zeros(1)
        self.log_drift = rng.normal(0.0, noise.drift_sd)
        self.busy = False
        self.now = 0.0

    def _extend(self) -> None:
        noise, n = self.noise, 20_000
        keep = math.exp(-_GRID_S / noise.drift_s)
        kicks = self.rng.normal(0.0, noise.drift_sd * math.sqrt(1 - keep * keep), n)
        drift = np.empty(n)
        for i, kick in enumerate(kicks):
            self.log_drift = self.log_drift * keep + kick
            drift[i] = self.log_drift
        factor = np.ones(n)
        if noise.busy_factor > 1.0:
            at = 0
            while at < n:
                mean = noise.busy_s if self.busy else noise.idle_s
                length = max(int(self.rng.exponential(mean) / _GRID_S), 1)
                factor[at : at + length] = noise.busy_factor if self.busy else 1.0
                at += length
                self.busy = not self.busy
        speed = np.exp(-np.abs(drift)) / factor  # drift only ever slows the machine down
        self.work = np.concatenate((self.work, self.work[-1] + np.cumsum(speed) * _GRID_S))

    def done_at(self, start: float, work: float) -> float:
        """When `work` seconds of still-machine work begun at `start` are finished."""
        while True:
            target = self._work_at(start) + work
            if target < self.work[-1]:
                place = int(np.searchsorted(self.work, target))
                low, high = self.work[place - 1], self.work[place]
                return float((place - 1 + (target - low) / (high - low)) * _GRID_S)
            self._extend()

    def delivered(self, start: float, end: float) -> float:
        """Seconds of still-machine work done between two wall times."""
        return self._work_at(end) - self._work_at(start)

    def _work_at(self, when: float) -> float:
        place, part = divmod(when / _GRID_S, 1.0)
        while place + 1 >= len(self.work):
            self._extend()
        low, high = self.work[int(place)], self.work[int(place) + 1]
        return float(low + part * (high - low))


def simulate(
    numerator: SimulatedArm,
    denominator: SimulatedArm,
    noise: Noise,
    *,
    prompts: int = 12,
    repeats: int = 1,
    tokens: int = 64,
    launches: int = 1,
    mode: str = "slices",
    slice_s: tuple[float, float] = (0.1, 0.2),
    seed: int = 0,
) -> Simulation:
    """Arms `candidate` and `stock` on `prompts` prompts. The steps of a prompt are the same in
    every repeat and launch, as a deterministic engine's are."""
    rng = np.random.default_rng(seed)
    arms = {"candidate": numerator, "stock": denominator}
    requests = tuple(GenerationRequest(f"p{i}", (i + 1,), tokens) for i in range(prompts))
    script = {
        (label, i): _steps(arm, tokens, np.random.default_rng((seed, i)))
        for label, arm in arms.items()
        for i in range(prompts)
    }
    runs = []
    machine = _Machine(noise, rng)
    for launch in range(launches):
        effect = {label: math.exp(rng.normal(0.0, noise.launch_sd)) for label in arms}
        for repeat in range(repeats):
            for prompt in range(prompts):
                order = list(arms) if (prompt + repeat + launch) % 2 == 0 else list(arms)[::-1]
                todo = {
                    label: _Pending(script[label, prompt], effect[label], noise, rng)
                    for label in order
                }
                alternate = _slices if mode == "slices" else _whole
                spans = alternate(machine, order, todo, rng, slice_s)
                for label in order:
                    work = todo[label]
                    answer = Answer(
                        requests[prompt],
                        tuple(range(work.counts[-1])),
                        "length",
                        work.sent,
                        tuple(
                            zip(
                                np.maximum.accumulate(work.times).tolist(), work.counts, strict=True
                            )
                        ),
                    )
                    runs.append(
                        run_from_answer(
                            answer,
                            arm=label,
                            request=prompt,
                            repeat=repeat,
                            launch=launch,
                            spans=spans[label],
                        )
                    )
    trees = {label: f"{label}-tree" for label in arms}
    recording = Recording(mode, requests, tuple(runs), trees, seed, machine.now)
    return Simulation(recording, _truth(script, prompts))


def _steps(arm: SimulatedArm, tokens: int, rng: np.random.Generator) -> list[tuple[float, int]]:
    """(still seconds, tokens committed so far) of each step; the first is the prefill's token."""
    out, count = [(arm.step_s, 1)], 1
    while count < tokens:
        committed = 1 + int(rng.choice(len(arm.accept), p=np.divide(arm.accept, sum(arm.accept))))
        cheap = rng.random() < arm.skip and committed == 1
        count = min(count + committed, tokens)
        out.append((arm.step_s * (arm.skip_cost if cheap else 1.0), count))
    return out


def _truth(script: dict[tuple[str, int], list[tuple[float, int]]], prompts: int) -> float:
    def log_rate(label: str, prompt: int) -> float:
        steps = script[label, prompt]
        return math.log((steps[-1][1] - 1) / sum(cost for cost, _ in steps[1:]))

    return float(np.mean([log_rate("candidate", p) - log_rate("stock", p) for p in range(prompts)]))


class _Pending:
    """One answer being generated on the virtual clock."""

    def __init__(
        self,
        steps: list[tuple[float, int]],
        effect: float,
        noise: Noise,
        rng: np.random.Generator,
    ) -> None:
        self.left = [cost * effect * math.exp(rng.normal(0.0, noise.jitter)) for cost, _ in steps]
        self.counts = tuple(count for _, count in steps)
        self.noise, self.rng = noise, rng
        self.times: list[float] = []
        self.sent = 0.0

    @property
    def done(self) -> bool:
        return len(self.times) == len(self.counts)

    def advance(self, machine: _Machine, until: float) -> float:
        """Runs from machine.now to `until` or the end of the answer; returns that time."""
        at = machine.now
        while not self.done:
            step = len(self.times)
            end = machine.done_at(at, self.left[step])
            if end > until:
                self.left[step] -= machine.delivered(at, until)
                return until
            self.times.append(end + float(self.rng.exponential(self.noise.client_s + 1e-12)))
            at = end
        return at


def _whole(
    machine: _Machine,
    order: list[str],
    todo: dict[str, _Pending],
    rng: np.random.Generator,
    slice_s: tuple[float, float],
) -> _Spans:
    for label in order:
        todo[label].sent = machine.now
        machine.now = todo[label].advance(machine, math.inf)
    return {label: [] for label in order}


def _slices(
    machine: _Machine,
    order: list[str],
    todo: dict[str, _Pending],
    rng: np.random.Generator,
    slice_s: tuple[float, float],
) -> _Spans:
    spans: _Spans = {label: [] for label in order}
    for label in order:
        todo[label].sent = start = machine.now
        machine.now = machine.done_at(start, todo[label].left[0])
        todo[label].times.append(machine.now)
        spans[label].append((PREFILL_TURN, start, machine.now))
    turn = 0
    while live := [label for label in order if not todo[label].done]:
        length = float(rng.uniform(*slice_s)) if len(live) > 1 else math.inf
        for label in live if turn % 2 == 0 else live[::-1]:
            start = machine.now
            todo[label].left[len(todo[label].times)] += machine.noise.resume_s
            machine.now = todo[label].advance(machine, start + length)
            spans[label].append((turn, start, machine.now))
        turn += 1
    return spans
