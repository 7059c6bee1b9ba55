"""Forcing where devices are GPUs: the verifier has none, so a worker lends its own, by turns.

Fake GPUs on a real local Ray; the stock engines are real ones of the tiny model.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import ray

import farm.workers.ray_workers as ray_workers
from engines.process_registry import ProcessRegistry
from engines.resolve import import_stock, store_for
from farm.campaign.jobs import MeasureJob, VerifyJob, VerifyOutcome
from farm.cluster import actor_variables
from farm.workers.ray_workers import RayWorkers
from settings.loading import load_setting
from settings.paths import work_dir
from tests.farm.workers.fake_engine_worker import FakeEngineWorker
from tests.farm.workers.test_verify_service import as_json, requests
from tests.verifier.settings_for_tests import FOLDER

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]


@pytest.fixture(scope="module")
def setting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The tiny FP32 setting on a GPU that is not there: the native engine serves it anyway."""
    folder = tmp_path_factory.mktemp("farm")
    shutil.copytree(FOLDER, folder / "settings")
    for file in (folder / "settings").glob("*/setting.toml"):
        file.write_text(file.read_text().replace('gpu = "cpu"', 'gpu = "h200"'))
    with (
        tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp", ignore_cleanup_errors=True) as short,
        pytest.MonkeyPatch.context() as patch,
    ):
        for name in ("RAY_USAGE_STATS_ENABLED", "RAY_ENABLE_UV_RUN_RUNTIME_ENV"):
            patch.setenv(name, "0")
        patch.setenv("SPECFARM_DATA", str(folder / "data"))
        patch.setenv("SPECFARM_TIMING_LOCK", str(folder / "timing.lock"))
        patch.setattr(ray_workers, "EngineWorker", FakeEngineWorker)
        ray.init(
            address="local",
            num_cpus=4,
            num_gpus=1,
            resources={"accelerator_type:H200": 1},
            include_dashboard=False,
            log_to_driver=False,
            logging_level="ERROR",
            _temp_dir=short,
            runtime_env={"env_vars": actor_variables(os.environ)},
        )
        yield str(folder / "settings" / "tiny-fp32")
        ray.shutdown()


def test_verifications_wait_for_the_device_and_share_one_launch_of_stock(
    setting: str, tmp_path: Path
) -> None:
    from engines.launcher import launch
    from settings.weights import ensure_target

    loaded = load_setting(setting)
    store = store_for(loaded)
    tree = import_stock(loaded, store)
    model = ensure_target(loaded)
    with launch(loaded, "stock", store.checkout(tree.commit), tree.tree_hash, model) as engine:
        answers = [engine.client().generate(r) for r in requests(6)]
    logs = work_dir("logs", "engines")
    before = len(list(logs.glob("*.log")))
    workers = RayWorkers(loaded, 1)
    try:
        assert workers.forcing_waits
        for n in range(3):
            job = VerifyJob(
                f"verify:{n}", setting, tree.commit, tree.tree_hash, answers=as_json(answers[n:])
            )
            workers.submit(job)
        # A measurement that comes later still goes first.
        (tmp_path / "go").touch()
        workers.submit(MeasureJob("one", str(tmp_path), (), (), "candidate", "stock", 1.0, 1))
        ended = [workers.wait() for _ in range(4)]
    finally:
        workers.close()
    assert [job.unit for job, _ in ended] == ["one", "verify:0", "verify:1", "verify:2"]
    verified = [outcome for _, outcome in ended if isinstance(outcome, VerifyOutcome)]
    assert [o.status for o in verified] == ["inconclusive"] * 3, verified
    assert all(o.summary is not None and o.summary["mismatches"] == 0 for o in verified)
    assert len(list(logs.glob("*.log"))) - before == 1
    assert ProcessRegistry().records() == []
