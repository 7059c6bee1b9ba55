"""Workers for many candidates on a tiny model, where launching costs more than measuring.

Stock's engines stay up between measurements, and the next candidate starts while this one is
measured. Everything else is the farm's own: the jobs, the launcher, the sandbox, the clocks.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from unittest.mock import patch

from engines.engine_process import EngineProcess
from engines.tree_store import TreeStore
from farm.campaign.jobs import ArmSpec, Job, MeasureJob, Outcome
from farm.workers import measure
from farm.workers.local import LocalWorkers
from farm.workers.verify import VerifyService
from settings.loading import load_setting
from settings.schema import Setting

TESTED = ("candidate", "final")
_launch = measure._launched


@dataclass
class Started:
    """An engine that is up, what ends it, and what outlived it once it was ended."""

    engine: EngineProcess
    stack: ExitStack
    escaped: dict[str, list[str]] = field(default_factory=dict)


class EnginePool:
    """`farm.workers.measure._launched` with a memory."""

    def __init__(self, store: TreeStore) -> None:
        self._store = store
        self._stock: dict[tuple[ArmSpec, str], Started] = {}
        self._ahead: dict[tuple[ArmSpec, str], deque[Future[Started]]] = defaultdict(deque)
        self._starter = ThreadPoolExecutor(max_workers=1)

    @contextmanager
    def launched(
        self, arm: ArmSpec, setting: Setting, store: TreeStore, escaped: dict[str, list[str]]
    ) -> Iterator[EngineProcess]:
        """Candidates are stopped at the end of the block, stock is not."""
        key = arm, setting.name
        if arm.arm in TESTED:
            waiting = self._ahead[key]
            started = waiting.popleft().result() if waiting else _start(arm, setting, store)
            try:
                with started.stack:
                    yield started.engine
            finally:
                escaped.update(started.escaped)
            return
        if key in self._stock and not self._stock[key].engine.is_running():
            self._stock.pop(key).stack.close()
        if key not in self._stock:
            self._stock[key] = _start(arm, setting, store)
        yield self._stock[key].engine

    def start_ahead(self, job: MeasureJob) -> None:
        """Begins to launch the candidate of a job that will run soon."""
        setting = load_setting(job.setting)
        for arm in job.arms:
            if arm.arm in TESTED:
                started = self._starter.submit(_start, arm, setting, self._store)
                self._ahead[arm, setting.name].append(started)

    def close(self) -> None:
        """Stops everything that is up or still starting."""
        self._starter.shutdown()
        for waiting in self._ahead.values():
            for future in waiting:
                if future.exception() is None:
                    future.result().stack.close()
        for started in self._stock.values():
            started.stack.close()


def _start(arm: ArmSpec, setting: Setting, store: TreeStore) -> Started:
    stack, escaped = ExitStack(), dict[str, list[str]]()
    engine = stack.enter_context(_launch(arm, setting, store, escaped))
    return Started(engine, stack, escaped)


class ResidentStockWorkers(LocalWorkers):
    """Two jobs may wait at once, so that the second one's candidate starts meanwhile."""

    def __init__(self, store: TreeStore, pool: EnginePool, service: VerifyService) -> None:
        super().__init__(lambda job: measure.run_measure_job(job, store), service.run)
        self._pool = pool

    @property
    def capacity(self) -> int:
        return 2

    def submit(self, job: Job) -> None:
        if isinstance(job, MeasureJob):
            self._pool.start_ahead(job)
        super().submit(job)

    def wait(self) -> tuple[Job, Outcome]:
        # Forcing first: it ends a candidate, and the one after the next can start.
        self._jobs = deque(sorted(self._jobs, key=lambda job: isinstance(job, MeasureJob)))
        return super().wait()


@contextmanager
def resident_stock(store: TreeStore) -> Iterator[ResidentStockWorkers]:
    """Workers of this process; nothing of them is left after the block."""
    pool, service = EnginePool(store), VerifyService(store)
    try:
        # An engine that starts must not share the core of one that is timed.
        unpinned = patch.object(measure, "engine_cpus", lambda threads: None)
        with unpinned, patch.object(measure, "_launched", pool.launched):
            yield ResidentStockWorkers(store, pool, service)
    finally:
        pool.close()
        service.close()
        store.prune()
