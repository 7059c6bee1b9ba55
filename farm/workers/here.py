"""Workers of this process, as a block that leaves no engine and no checkout behind."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from engines.tree_store import TreeStore
from farm.workers.local import LocalWorkers
from farm.workers.measure import run_measure_job
from farm.workers.verify import VerifyService


@contextmanager
def workers_here(store: TreeStore) -> Iterator[LocalWorkers]:
    """Measures and verifies one job after the other."""
    service = VerifyService(store)
    try:
        yield LocalWorkers(lambda job: run_measure_job(job, store), service.run)
    finally:
        service.close()
        store.prune()
