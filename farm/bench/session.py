"""What every mode shares: the clients, the order of arms, the growing recording, when to end."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from engines.answers import GenerationRequest
from farm.bench.blame import blaming
from farm.bench.plan import MeasurementPlan
from farm.bench.protocol import PausableEngine, StreamingClient
from farm.bench.recording import Recording, Run

now = time.monotonic


@dataclass
class Session:
    """One measurement under way."""

    engines: Mapping[str, PausableEngine]
    requests: tuple[GenerationRequest, ...]
    plan: MeasurementPlan
    trees: dict[str, str]
    clients: dict[str, StreamingClient] = field(default_factory=dict)
    runs: list[Run] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    started: float = field(default_factory=now)

    @classmethod
    def begin(
        cls,
        engines: Mapping[str, PausableEngine],
        requests: Sequence[GenerationRequest],
        plan: MeasurementPlan,
    ) -> Session:
        return cls(
            engines=engines,
            requests=tuple(requests[: plan.prompts]),
            plan=plan,
            trees={label: engine.tree_hash for label, engine in engines.items()},
            clients={label: engine.client() for label, engine in engines.items()},
        )

    def rounds(self) -> Iterator[tuple[int, int]]:
        """(repeat, prompt) pairs until all are done, the budget is spent or the rule says stop."""
        for repeat in range(self.plan.repeats):
            for prompt in range(len(self.requests)):
                if self._ended(repeat, prompt):
                    return
                yield repeat, prompt

    def _ended(self, repeat: int, prompt: int) -> bool:
        finished = len(self.requests) if repeat else prompt
        if finished < min(self.plan.fewest_prompts, len(self.requests)):
            return False
        if self.plan.budget_s is not None and now() - self.started > self.plan.budget_s:
            done = repeat * len(self.requests) + prompt
            planned = self.plan.repeats * len(self.requests)
            self.notes.append(f"time spent after {done} of {planned} answers an arm")
            return True
        reason = self.plan.stop(self.recording()) if self.plan.stop else None
        if reason:
            self.notes.append(f"stopped early: {reason}")
        return reason is not None

    def order(self, repeat: int, prompt: int) -> list[str]:
        """The arms, rotated by prompt and repeat: each leads equally often."""
        labels = list(self.engines)
        shift = (repeat + prompt + self.plan.seed) % len(labels)
        return labels[shift:] + labels[:shift]

    def recording(self) -> Recording:
        return Recording(
            mode=self.plan.mode,
            requests=self.requests,
            runs=tuple(self.runs),
            trees=dict(self.trees),
            seed=self.plan.seed,
            seconds=now() - self.started,
            plan=self.plan.to_json(),
            notes=tuple(self.notes),
        )

    @contextmanager
    def others_paused(self) -> Iterator[None]:
        """All arms paused inside (with `pause_idle`), all running again after, also on errors:
        a stopped process group would ignore its own SIGTERM."""
        try:
            if self.plan.pause_idle:
                for engine in self.engines.values():
                    engine.pause()
            yield
        finally:
            for engine in self.engines.values():
                engine.resume()

    @contextmanager
    def running(self, label: str) -> Iterator[None]:
        """That arm runs inside; an engine error inside is its own."""
        with blaming(label):
            if not self.plan.pause_idle:
                yield
                return
            self.engines[label].resume()
            try:
                yield
            finally:
                self.engines[label].pause()
