"""Continuous batching: a FIFO queue with a limit, then slots that advance together step by step."""

from __future__ import annotations

import logging
import time

import torch

from native_engine.batching.batch_engine import BatchEngine
from native_engine.batching.sequence import Running
from native_engine.errors import QueueFull, TooManyRequests
from native_engine.requests import GenerateResult
from native_engine.scheduler import Job, Scheduler

_log = logging.getLogger(__name__)


class BatchScheduler(Scheduler):
    """The queue of the single path, before slots. `submit` from any thread; requests get slots in
    order of arrival. Callbacks of a job are called on the engine thread: they must return at
    once."""

    engine: BatchEngine  # type: ignore[assignment]

    def __init__(self, engine: BatchEngine, max_queued: int) -> None:
        self._admitted: dict[Running, Job] = {}
        super().__init__(engine, max_queued)  # type: ignore[arg-type]

    @property
    def load(self) -> tuple[int, int]:
        """Requests running and waiting."""
        with self._changed:
            return len(self._admitted), len(self._waiting)

    def submit(self, jobs: list[Job]) -> None:
        """Queue all of `jobs` or none.

        Raises BadRequest for a request that fits no slot, TooManyRequests for more jobs than may
        ever run and wait, QueueFull for more than may do so now."""
        for job in jobs:
            self.engine.slots.check(job.request)
        most = self.engine.slots.count + self.max_queued
        if len(jobs) > most:
            raise TooManyRequests(f"{len(jobs)} prompts in one call; send at most {most}")
        with self._changed:
            if self._closed or not self.alive:
                raise QueueFull("the engine has stopped; start it again")
            if len(jobs) > most - len(self._admitted) - len(self._waiting):
                raise QueueFull(
                    f"{len(self._waiting)} requests wait (limit {self.max_queued}); retry later"
                )
            self._waiting.extend(jobs)
            self._changed.notify()

    def flush(self) -> None:
        """Forget what earlier requests left in free slots, and the count of dropped drafts."""
        with self._changed:
            self.engine.slots.flush()
            self.engine.decoder.planner.dropped = 0

    def gauges(self) -> dict[str, float]:
        """Slots in use, tokens that running requests and free slots hold, prefix reuse and dropped
        drafts so far, on a GPU the bytes of all tensors."""
        device = self.engine.decoder.target.device
        on_device = device.type == "cuda"
        with self._changed:
            slots = self.engine.slots
            held = sum(running.held for running in self._admitted)
            memory = {"device_bytes": torch.cuda.memory_allocated(device)} if on_device else {}
            return {
                **memory,
                "slots": slots.count,
                "slots_used": slots.count - slots.free,
                "tokens_running": held,
                "tokens_kept": slots.kept_tokens,
                "prefix_hits": slots.prefix_hits,
                "cached_tokens": slots.cached_tokens,
                "drafts_dropped": self.engine.decoder.planner.dropped,
            }

    def close(self) -> None:
        """End the thread after cancelling what runs and waits."""
        with self._changed:
            self._closed = True
            for job in (*self._waiting, *self._admitted.values()):
                job.cancelled.set()
            self._changed.notify()
        self._thread.join(timeout=30)

    def _loop(self) -> None:
        try:
            with torch.inference_mode():
                self._serve()
        # Not of one request: nobody may wait for an answer that will not come.
        except Exception as error:
            _log.exception("the engine thread ended")
            with self._changed:
                self._closed = True
                jobs = [*self._waiting, *self._admitted.values()]
                self._waiting.clear()
                self._admitted.clear()
            for job in jobs:
                self._hand_over(job, error)

    def _serve(self) -> None:
        while self._wait():
            self.last_progress = time.monotonic()
            self._admit()
            for running, job in self._admitted.items():
                if job.cancelled.is_set():
                    running.abort()
            self._retire()
            if self._admitted:
                self.engine.decoder.step(list(self._admitted))
                self._retire()

    def _wait(self) -> bool:
        """Until there is work; False when there is none and never will be."""
        with self._changed:
            while not (self._waiting or self._admitted or self._closed):
                self._changed.wait()
            return bool(self._waiting or self._admitted)

    def _admit(self) -> None:
        slots, decoder = self.engine.slots, self.engine.decoder
        with self._changed:
            while self._waiting and slots.free:
                job = self._waiting[0]
                slot, held = slots.take(job.request)
                decoder.begin(slot, held)
                device = decoder.target.device
                running = Running(job.request, slot, held, job.on_tokens, device)
                running.result.replayed = self.engine.replayed
                self._admitted[running] = self._waiting.popleft()

    def _retire(self) -> None:
        ended = [running for running in self._admitted if running.done]
        with self._changed:
            jobs = [self._admitted.pop(running) for running in ended]
            for running in ended:
                self.engine.slots.give_back(running.slot, running.tokens[: running.held])
        for job, running in zip(jobs, ended, strict=True):
            self._hand_over(job, running.error or running.result)

    def _hand_over(self, job: Job, outcome: GenerateResult | Exception) -> None:
        try:
            job.on_done(outcome)
        # A client's callback must not take the engine thread with it.
        except Exception:
            _log.exception("the answer of %s could not be handed over", job.request.id)
