"""The shapes stock is forced in beside its own, on the pool's engines: by a calibration, and where
a token seems wrong."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from engines.protocol import RowShapes
from engines.registry import engine_driver
from engines.tree_store import TreeStore
from farm.campaign.jobs import VerifyJob
from farm.workers.stock_pool import ForcingPool
from settings.schema import Setting
from verifier.forced import Pair, Position
from verifier.second_look import SecondLook
from verifier.sweep import Shape, Sweeps

# Rows a pass in which stock's noise is taken: a full verify step's.
ROW_SHAPES = (8,)
AT_ONCE = 8
# As in decoding, and as in a verify step.
SECOND_LOOK_ROWS = (1, 8)


@contextmanager
def calibration_sweeps(
    setting: Setting, job: VerifyJob, store: TreeStore, pool: ForcingPool
) -> Iterator[Sweeps]:
    """Stock reading prompts as verify steps would (where its driver can make it), stock asked
    `AT_ONCE` times at once, and stock's own short answers. Engines started for a shape are stopped
    at the end."""
    requests = setting.serving.max_running_requests
    force = partial(pool.force_many, job.setting)
    path = "queued: same path" if requests == 1 else f"batches of up to {requests}"
    at_once = partial(force, job.stock_commit, at_once=AT_ONCE)
    shapes, commits = [Shape(f"{AT_ONCE} requests at once", path, at_once)], []
    driver = engine_driver(setting.engine.name)
    if isinstance(driver, RowShapes):
        for rows in ROW_SHAPES:
            commit = store.commit_knobs(job.stock_commit, driver.row_shape_knobs(rows)).commit
            pool.take_bundle(store.bundle(commit))
            kernels = "a verify step's kernels"
            shapes.append(Shape(f"{rows} rows a pass", kernels, partial(force, commit)))
            commits.append(commit)
    try:
        yield Sweeps(shapes, partial(pool.generate, job.setting, job.stock_commit))
    finally:
        for commit in commits:
            pool.stop(job.setting, commit)


def second_look(
    setting: Setting, job: VerifyJob, store: TreeStore, pool: ForcingPool
) -> SecondLook | None:
    """Shorter passes of stock, and its row shapes of `SECOND_LOOK_ROWS`, started when asked and
    stopped after; None where its driver cannot make them. And stock on the FP32 twin."""
    driver = engine_driver(setting.engine.name)
    if not isinstance(driver, RowShapes):
        return None
    shapes = driver

    def forced(pairs: Sequence[Pair]) -> list[list[Sequence[Position]]]:
        found = [pool.force_many(job.setting, job.stock_commit, pairs)]
        for rows in SECOND_LOOK_ROWS:
            commit = store.commit_knobs(job.stock_commit, shapes.row_shape_knobs(rows)).commit
            pool.take_bundle(store.bundle(commit))
            try:
                found.append(pool.force_many(job.setting, commit, pairs))
            finally:
                pool.stop(job.setting, commit)
        return found

    twin = job.exact_setting
    in_fp32 = None if twin is None else partial(pool.force_many, twin, job.stock_commit)
    return SecondLook(forced, in_fp32)
