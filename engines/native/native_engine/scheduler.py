"""One running request, a FIFO queue with a limit, cancellation. The engine has its own thread."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from native_engine.engine import Engine
from native_engine.errors import QueueFull
from native_engine.requests import GenerateRequest, GenerateResult


@dataclass
class Job:
    """`on_tokens` and `on_done` are called on the engine thread: they must return at once.

    `on_done` gets the result, or the exception that ended the request."""

    request: GenerateRequest
    on_tokens: Callable[[list[int]], None]
    on_done: Callable[[GenerateResult | Exception], None]
    cancelled: threading.Event = field(default_factory=threading.Event)


class Scheduler:
    """`submit` from any thread; jobs run in order of arrival, one at a time."""

    def __init__(self, engine: Engine, max_queued: int) -> None:
        self.engine = engine
        self.max_queued = max_queued
        self.last_progress = time.monotonic()
        self._waiting: deque[Job] = deque()
        self._running: Job | None = None
        self._closed = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._loop, name="engine", daemon=True)
        self._thread.start()

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    @property
    def load(self) -> tuple[int, int]:
        """Requests running and waiting."""
        with self._changed:
            return int(self._running is not None), len(self._waiting)

    def submit(self, jobs: list[Job]) -> None:
        """Queue all of `jobs` or none. Raises QueueFull above `max_queued` waiting requests."""
        with self._changed:
            free = self.max_queued + int(self._running is None) - len(self._waiting)
            if len(jobs) > free:
                raise QueueFull(
                    f"{len(self._waiting)} requests wait (limit {self.max_queued}); retry later"
                )
            self._waiting.extend(jobs)
            self._changed.notify()

    def cancel(self, job: Job) -> None:
        """Stop a job before its next step, or take it out of the queue."""
        job.cancelled.set()
        with self._changed:
            if job in self._waiting:
                self._waiting.remove(job)

    def close(self) -> None:
        """End the thread after cancelling what runs and waits."""
        with self._changed:
            self._closed = True
            for job in (*self._waiting, *([self._running] if self._running else [])):
                job.cancelled.set()
            self._changed.notify()
        self._thread.join(timeout=30)

    def _next(self) -> Job | None:
        with self._changed:
            self._running = None
            while not self._waiting and not self._closed:
                self._changed.wait()
            if not self._waiting:
                return None
            self._running = self._waiting.popleft()
            return self._running

    def _loop(self) -> None:
        while (job := self._next()) is not None:
            self.last_progress = time.monotonic()
            try:
                outcome: GenerateResult | Exception = self.engine.run(
                    job.request, job.on_tokens, self._proceed(job)
                )
            # A request that fails must not take the engine thread with it.
            except Exception as error:
                outcome = error
            with self._changed:
                self._running = None
            job.on_done(outcome)

    def _proceed(self, job: Job) -> Callable[[], bool]:
        def proceed() -> bool:
            self.last_progress = time.monotonic()
            return not job.cancelled.is_set()

        return proceed
