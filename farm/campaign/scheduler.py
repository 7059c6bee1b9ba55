"""Drives tasks over workers, one event a step, through the ledger.

A task is a generator that yields jobs and receives their outcomes. A job whose unit the ledger
knows as done is answered from there: that is the whole of resume.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any

from farm.campaign.decide import environment_fault
from farm.campaign.jobs import Job, Outcome, VerifyJob
from farm.campaign.workers import Workers
from farm.ledger import Ledger, UnitKey

Task = Generator[Job, Outcome, Any]


@dataclass(frozen=True)
class Phase:
    """Tasks that may run side by side; the campaign goes on when all have ended.

    `may_start` is asked before the first unit of a task that the ledger does not know: False (the
    budget is spent) ends the task unrun, and its result is None. What was measured before a kill
    therefore counts, however late the resume.
    """

    name: str
    tasks: Sequence[Task]
    may_start: Callable[[], bool] = lambda: True


class UnitStore:
    """Outcomes in the ledger: which job is which unit, and JSON both ways."""

    def __init__(
        self,
        ledger: Ledger,
        key_of: Callable[[Job], UnitKey],
        encode: Callable[[Outcome], Any],
        decode: Callable[[Job, Any], Outcome],
    ) -> None:
        self._ledger = ledger
        self._key_of = key_of
        self._encode = encode
        self._decode = decode

    def known(self, job: Job) -> Outcome | None:
        unit = self._ledger.unit(self._key_of(job))
        return (
            self._decode(job, unit.result) if unit is not None and unit.status == "done" else None
        )

    def start(self, job: Job) -> None:
        self._ledger.start(self._key_of(job))

    def end(self, job: Job, outcome: Outcome) -> None:
        """A broken environment is recorded as failed, so that resume tries the unit again."""
        fault = environment_fault(job, outcome)
        if fault is not None:
            self._ledger.fail(self._key_of(job), fault or outcome.status)
        else:
            self._ledger.finish(self._key_of(job), self._encode(outcome))


class Scheduler:
    """Runs one phase after another; `step` handles one event."""

    def __init__(
        self,
        phases: Generator[Phase, list[Any], Any],
        workers: Workers,
        units: UnitStore,
        on_end: Callable[[Job, Outcome], None] = lambda job, outcome: None,
    ) -> None:
        self._phases = phases
        self._on_end = on_end
        self._workers = workers
        self._units = units
        self._phase: Phase | None = None
        self._results: list[Any] = []
        self._waiting: deque[tuple[int, Task]] = deque()
        self._running: dict[str, tuple[int, Task]] = {}
        self._waiting_for_forcing: set[str] = set()
        self.result: Any = None
        self.finished = False

    def run(self) -> Any:
        """Steps to the end; returns what the campaign returned."""
        while self.step():
            pass
        return self.result

    def step(self) -> bool:
        """One event: open a phase, start a task or handle an outcome. False at the end."""
        if self.finished:
            return False
        if self._phase is None or not (self._waiting or self._running):
            self._next_phase()
        elif self._waiting and self._busy < self._workers.capacity:
            index, task = self._waiting.popleft()
            self._advance(index, task, None, self._phase.may_start)
        else:
            job, outcome = self._workers.wait()
            self._units.end(job, outcome)
            self._on_end(job, outcome)
            self._waiting_for_forcing.discard(job.unit)
            index, task = self._running.pop(job.unit)
            self._advance(index, task, outcome)
        return not self.finished

    @property
    def _busy(self) -> int:
        return len(self._running) - len(self._waiting_for_forcing)

    def _next_phase(self) -> None:
        try:
            if self._phase is None:
                self._phase = next(self._phases)
            else:
                self._phase = self._phases.send(self._results)
        except StopIteration as end:
            self.finished, self.result = True, end.value
            return
        self._results = [None] * len(self._phase.tasks)
        self._waiting = deque(enumerate(self._phase.tasks))

    def _advance(
        self,
        index: int,
        task: Task,
        outcome: Outcome | None,
        may_start: Callable[[], bool] = lambda: True,
    ) -> None:
        """Sends `outcome` into the task; answers known jobs from the ledger, submits the next."""
        started = False
        try:
            job = next(task) if outcome is None else task.send(outcome)
            while (known := self._units.known(job)) is not None:
                started = True
                job = task.send(known)
        except StopIteration as end:
            self._results[index] = end.value
            return
        if not started and not may_start():
            task.close()
            return
        self._units.start(job)
        self._running[job.unit] = (index, task)
        if self._workers.forcing_waits and isinstance(job, VerifyJob):
            self._waiting_for_forcing.add(job.unit)
        self._workers.submit(job)
