"""`Workers` on Ray: one EngineWorker actor a device, one Verifier. Both are restarted when killed;
a job in flight on a killed actor runs once more (units are idempotent) as soon as the actor is
back, then it is given up as a broken environment."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Sequence
from typing import Any

import ray

from farm.campaign.jobs import (
    Job,
    MeasureJob,
    MeasureOutcome,
    Outcome,
    VerifyJob,
    VerifyOutcome,
)
from settings.errors import SpecfarmError
from settings.hardware import hardware
from settings.schema import Setting

_SCHEDULING_TIMEOUT_S = 120.0


class EngineWorker:
    """Owns one whole device of the setting's type (or the CPU): measures on it, and lends it to the
    verifier's stock engines in between."""

    _pool: Any = None

    def ready(self) -> bool:
        return True

    def measure(self, job: MeasureJob) -> MeasureOutcome:
        from farm.workers.measure import run_measure_job

        return run_measure_job(job)

    def stock(self, name: str, *arguments: Any) -> Any:
        """A call of `farm.workers.stock_pool.StockPool` on this device."""
        from engines.tree_store import TreeStore
        from farm.workers.stock_pool import StockPool

        if self._pool is None:
            self._pool = StockPool(TreeStore())
        return getattr(self._pool, name)(*arguments)


class Verifier:
    """Decides what is lossless. Stock engines do the forcing, candidates never do: engines of its
    own on a CPU, engines on a worker's device on a GPU."""

    def __init__(self) -> None:
        from farm.workers.remote_pool import RemotePool
        from farm.workers.verify import VerifyService

        self._service = VerifyService()
        self._remote = RemotePool()

    def ready(self) -> bool:
        return True

    def verify(self, jobs: Sequence[VerifyJob], worker: Any) -> list[VerifyOutcome]:
        """One batch; `worker` is idle meanwhile and lends its device, None for this process's."""
        if worker is None:
            return self._service.run_many(jobs)
        self._remote.lend(worker)
        return self._service.run_many(jobs, self._remote)

    def close(self) -> None:
        self._service.close()


# Retried by Ray, because a call made while its actor restarts fails at once unless it may be.
_RESTARTED = {"max_restarts": -1, "max_task_retries": 1, "max_concurrency": 1}


class RayWorkers:
    """Submits jobs to idle actors and waits for them.

    Raises:
        SpecfarmError: the cluster has no device of the setting's type (names the resource).
    """

    def __init__(self, setting: Setting, count: int) -> None:
        device = hardware(setting.hardware.gpu)
        options: dict[str, Any] = {"num_cpus": 1}
        if device.is_gpu:
            options |= {"num_gpus": 1, "accelerator_type": device.ray_accelerator}
        self._count = count if device.is_gpu else 1
        self.forcing_waits = device.is_gpu
        self._engines = [
            ray.remote(**_RESTARTED, **options)(EngineWorker).remote() for _ in range(self._count)
        ]
        self._verifier = ray.remote(**_RESTARTED, num_cpus=0)(Verifier).remote()
        self._wait_until_ready(device.ray_accelerator)
        self._idle = deque(self._engines)
        self._queue: deque[MeasureJob] = deque()
        self._held: list[VerifyJob] = []
        self._flight: dict[Any, tuple[tuple[Job, ...], Any]] = {}
        self._ended: deque[tuple[Job, Outcome]] = deque()

    def _wait_until_ready(self, accelerator: str | None) -> None:
        actors = [*self._engines, self._verifier]
        ready, missing = ray.wait(
            [actor.ready.remote() for actor in actors],
            num_returns=len(actors),
            timeout=_SCHEDULING_TIMEOUT_S,
        )
        ray.get(ready)
        if missing:
            self._kill()
            resource = f"accelerator_type:{accelerator}" if accelerator else "1 CPU"
            raise SpecfarmError(
                f"the Ray cluster did not give {len(missing)} of {len(actors)} actors within "
                f"{_SCHEDULING_TIMEOUT_S:.0f} s (needed for each: {resource})",
                "Add such a node, or lower --workers",
            )

    @property
    def capacity(self) -> int:
        return self._count

    def submit(self, job: Job) -> None:
        if isinstance(job, MeasureJob):
            self._queue.append(job)
            self._dispatch()
        elif self.forcing_waits:
            self._held.append(job)
        else:
            self._flight[self._verifier.verify.remote([job], None)] = ((job,), None)

    def _dispatch(self) -> None:
        while self._queue and self._idle:
            job, worker = self._queue.popleft(), self._idle.popleft()
            self._flight[worker.measure.remote(job)] = ((job,), worker)

    def _force_held(self) -> None:
        """What waits for forcing goes to an idle device in one batch: the verifier decides one
        batch at a time, and measurements go first."""
        busy = any(isinstance(job, VerifyJob) for jobs, _ in self._flight.values() for job in jobs)
        if self._held and self._idle and not self._queue and not busy:
            jobs, worker = tuple(self._held), self._idle.popleft()
            self._held.clear()
            self._flight[self._verifier.verify.remote(list(jobs), worker)] = (jobs, worker)

    def wait(self) -> tuple[Job, Outcome]:
        if not self._ended:
            self._force_held()
            done, _ = ray.wait(list(self._flight), num_returns=1)
            jobs, worker = self._flight.pop(done[0])
            try:
                found = ray.get(done[0])
                outcomes = found if isinstance(found, list) else [found]
            except ray.exceptions.RayError as error:
                outcomes = [_broken(job, error) for job in jobs]
            self._ended.extend(zip(jobs, outcomes, strict=True))
            if worker is not None:
                self._idle.append(worker)
                self._dispatch()
        return self._ended.popleft()

    def close(self) -> None:
        """Ends the actors; their engines end with them."""
        with contextlib.suppress(ray.exceptions.RayError):
            ray.get(self._verifier.close.remote(), timeout=30)
        self._kill()

    def _kill(self) -> None:
        for actor in [*self._engines, self._verifier]:
            ray.kill(actor)


def _broken(job: Job, error: Exception) -> Outcome:
    lines = str(error).strip().splitlines() or [type(error).__name__]
    if isinstance(error, ray.exceptions.RayTaskError):
        # The last line of its traceback is the worker's own error.
        text = f"a worker failed on {job.unit}: {lines[-1]}"
    else:
        text = f"a worker died twice on {job.unit}: {lines[0]}"
    if isinstance(job, MeasureJob):
        return MeasureOutcome("invalid_environment", error=text)
    return VerifyOutcome("invalid_environment", text)
