"""`RayWorkers` on a real local Ray with fake GPUs; measurements are fakes, the kills are not."""

from __future__ import annotations

import os
import signal
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import ray

import farm.workers.ray_workers as ray_workers
from farm.campaign.jobs import MeasureJob
from farm.cluster import actor_variables
from farm.workers.ray_workers import RayWorkers
from settings.errors import SpecfarmError
from settings.loading import load_setting
from settings.schema import Setting
from tests.farm.workers.fake_engine_worker import FakeEngineWorker

TINY = Path(__file__).resolve().parents[2] / "data" / "settings" / "tiny"
pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    """Two fake H200s of one node."""
    # In /tmp: Ray's sockets lie below it, and their paths must be short.
    with (
        tempfile.TemporaryDirectory(
            prefix="ray-", dir="/tmp", ignore_cleanup_errors=True
        ) as folder,
        pytest.MonkeyPatch.context() as patch,
    ):
        for name in ("RAY_USAGE_STATS_ENABLED", "RAY_ENABLE_UV_RUN_RUNTIME_ENV"):
            patch.setenv(name, "0")
        ray.init(
            address="local",
            num_cpus=4,
            num_gpus=2,
            resources={"accelerator_type:H200": 2},
            include_dashboard=False,
            log_to_driver=False,
            logging_level="ERROR",
            _temp_dir=folder,
            runtime_env={"env_vars": actor_variables({})},
        )
        yield
        ray.shutdown()


@pytest.fixture
def fake_worker(cluster: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_workers, "EngineWorker", FakeEngineWorker)


def gpu_setting(gpu: str) -> Setting:
    tiny = load_setting(str(TINY))
    return tiny.model_copy(update={"hardware": tiny.hardware.model_copy(update={"gpu": gpu})})


def job(unit: str, folder: Path) -> MeasureJob:
    return MeasureJob(unit, str(folder), (), (), "candidate", "stock", 1.0, 1)


def started(folder: Path, unit: str, known: set[int]) -> int:
    """The pid of the next worker process that begins `unit`."""
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline:
        for path in folder.glob(f"{unit}-*"):
            pid = int(path.name.rpartition("-")[2])
            if pid not in known:
                known.add(pid)
                return pid
        time.sleep(0.05)
    raise AssertionError(f"{unit} never began (again)")


@pytest.fixture
def workers(fake_worker: None) -> Iterator[RayWorkers]:
    made = RayWorkers(gpu_setting("h200"), 2)
    yield made
    made.close()


def test_a_job_whose_worker_is_killed_runs_once_more(workers: RayWorkers, tmp_path: Path) -> None:
    workers.submit(job("one", tmp_path))
    known: set[int] = set()
    os.kill(started(tmp_path, "one", known), signal.SIGKILL)
    started(tmp_path, "one", known)
    (tmp_path / "go").touch()
    ended, outcome = workers.wait()
    assert (ended.unit, outcome.status) == ("one", "ok")
    assert len(list(tmp_path.glob("one-*"))) == 2


def test_a_job_killed_twice_is_a_broken_environment_and_the_next_runs(
    workers: RayWorkers, tmp_path: Path
) -> None:
    workers.submit(job("one", tmp_path))
    known: set[int] = set()
    for _ in range(2):
        os.kill(started(tmp_path, "one", known), signal.SIGKILL)
    ended, outcome = workers.wait()
    assert (ended.unit, outcome.status) == ("one", "invalid_environment")
    assert "died twice on one" in outcome.error  # type: ignore[union-attr]
    (tmp_path / "go").touch()
    for unit in ("two", "three", "four"):
        workers.submit(job(unit, tmp_path))
    # The killed worker is among those that answer.
    ends = [workers.wait() for _ in range(3)]
    assert {(ended.unit, outcome.status) for ended, outcome in ends} == {
        ("two", "ok"),
        ("three", "ok"),
        ("four", "ok"),
    }
    assert len(list(tmp_path.glob("one-*"))) == 2


def test_a_worker_that_raises_is_named_with_its_error(workers: RayWorkers, tmp_path: Path) -> None:
    workers.submit(job("raise", tmp_path))
    _, outcome = workers.wait()
    assert outcome.status == "invalid_environment"
    assert "no such disk" in outcome.error  # type: ignore[union-attr]
    assert "died" not in outcome.error  # type: ignore[union-attr]


def test_each_worker_has_a_whole_device_of_its_own(workers: RayWorkers, tmp_path: Path) -> None:
    assert workers.capacity == 2
    for unit in ("one", "two"):
        workers.submit(job(unit, tmp_path))
    # Both are running before either may end.
    for unit in ("one", "two"):
        started(tmp_path, unit, set())
    (tmp_path / "go").touch()
    devices = [workers.wait()[1].error for _ in range(2)]  # type: ignore[union-attr]
    assert sorted(devices) == ["0", "1"]


@pytest.mark.parametrize(
    ("gpu", "count", "named"), [("h100", 1, "accelerator_type:H100"), ("h200", 3, "H200")]
)
def test_a_device_the_cluster_lacks_is_named_and_its_claims_are_dropped(
    fake_worker: None, monkeypatch: pytest.MonkeyPatch, gpu: str, count: int, named: str
) -> None:
    monkeypatch.setattr(ray_workers, "_SCHEDULING_TIMEOUT_S", 8.0)
    with pytest.raises(SpecfarmError, match=named):
        RayWorkers(gpu_setting(gpu), count)
    # What it did get is free again.
    deadline = time.monotonic() + 30
    while ray.available_resources().get("GPU") != 2:
        assert time.monotonic() < deadline, ray.available_resources()
        time.sleep(0.2)
