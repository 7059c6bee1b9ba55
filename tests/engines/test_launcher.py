"""Launching, pausing and ending engines that behave well and badly; the oracle is psutil."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest

from engines import exec_child
from engines.engine_process import EngineProcess, fresh_port, port_is_free
from engines.errors import EngineCrashed, EngineError, EngineProtocolError, EngineTimeout
from engines.process_registry import ProcessRegistry
from engines.resolve import import_stock
from engines.tree_store import TreeStore
from settings.errors import ProvisionError
from settings.schema import Drafter, Setting

from .conftest import Launch


def family(engine: EngineProcess) -> list[psutil.Process]:
    leader = psutil.Process(engine.pid)
    return [leader, *leader.children(recursive=True)]


def gone(processes: list[psutil.Process]) -> bool:
    return not [p for p in processes if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]


def short_deadline(setting: Setting, seconds: float) -> Setting:
    engine = setting.engine.model_copy(update={"startup_deadline_s": seconds})
    return setting.model_copy(update={"engine": engine})


def test_environment_is_scrubbed(
    launch_fake: Launch, monkeypatch: pytest.MonkeyPatch, data_folder: Path
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "secret")
    monkeypatch.setenv("HF_TOKEN", "secret")
    monkeypatch.setenv("PYTHONPATH", "/somewhere")
    monkeypatch.setenv("SGLANG_SIMULATE_ACC_LEN", "4")
    cpu = min(os.sched_getaffinity(0))
    options = {"cpus": [cpu], "env_extra": {"CUDA_VISIBLE_DEVICES": "", "SPECFARM_X": "1"}}
    engine = launch_fake(launch_options=options)
    info = engine.client().server_info()
    env = info["env"]
    assert "secret" not in env.values()
    assert not [n for n in env if n.startswith(("SPECFARM", "SGLANG", "PYTHONPATH"))]
    assert env["OMP_NUM_THREADS"] == env["MKL_NUM_THREADS"] == "3"
    assert env["HF_HUB_OFFLINE"] == "1" and env["CUDA_VISIBLE_DEVICES"] == ""
    cache = data_folder / "shared" / "caches" / engine.tree_hash
    assert env["TRITON_CACHE_DIR"] == str(cache / "triton")
    assert env["FAKE_CACHE"] == str(cache)
    assert Path(env["HOME"]).is_relative_to(cache)
    assert info["cpus"] == [cpu]
    assert Path(info["cwd"]).name == engine.tree_hash
    # A candidate without arguments of its own is launched with stock's.
    assert info["args"] == ["--x", "1"] and info["arm"] == "candidate"
    scratch = Path(env["TMPDIR"])
    assert scratch.is_dir()
    engine.stop()
    assert not scratch.exists()


def test_arm_ar_needs_no_drafters_weights(
    launch_fake: Launch, fake_setting: Setting, tmp_path: Path
) -> None:
    local = {"source": "local", "path": str(tmp_path / "nowhere"), "licence": "Apache-2.0"}
    drafter = Drafter.model_validate({"kind": "dspark", "checkpoint": local})
    setting = fake_setting.model_copy(update={"drafter": drafter})
    assert launch_fake(setting=setting, arm="ar").client().server_info()["arm"] == "ar"
    for arm in ("stock", "candidate"):
        with pytest.raises(ProvisionError, match="nowhere"):
            launch_fake(setting=setting, arm=arm)


def test_own_session_and_nothing_left(launch_fake: Launch) -> None:
    engine = launch_fake()
    assert os.getsid(engine.pid) == os.getpgid(engine.pid) == engine.pid != os.getsid(0)
    assert [r.pid for r in ProcessRegistry().records()] == [engine.pid]
    processes = family(engine)
    assert engine.is_running()
    engine.stop()
    assert gone(processes) and not engine.is_running()
    assert port_is_free("127.0.0.1", engine.port)
    assert ProcessRegistry().records() == []
    engine.stop()


@pytest.mark.parametrize("paused", [False, True])
@pytest.mark.parametrize("behaviour", ["stubborn", "orphans"])
def test_stop_ends_what_resists(launch_fake: Launch, behaviour: str, paused: bool) -> None:
    engine = launch_fake(behaviour)
    processes = family(engine)
    assert len(processes) == (3 if behaviour == "orphans" else 1)
    if paused:
        engine.pause()
    engine.stop(grace_s=0.3)
    assert gone(processes)
    # Of the two orphans one stayed in the engine's session.
    assert engine.escaped == (("sleep",) if behaviour == "orphans" else ())


def test_orphans_of_a_dead_leader_are_ended(launch_fake: Launch) -> None:
    engine = launch_fake("orphans")
    processes = family(engine)
    os.kill(engine.pid, signal.SIGKILL)
    while engine.is_running():
        time.sleep(0.01)
    assert not gone(processes)
    engine.stop(grace_s=0.3)
    assert gone(processes)


def test_pause_stops_the_group_and_resume_continues_it(launch_fake: Launch) -> None:
    engine = launch_fake()
    leader = psutil.Process(engine.pid)
    engine.pause()
    while leader.status() != psutil.STATUS_STOPPED:
        time.sleep(0.005)
    results: list[bool] = []
    asker = threading.Thread(target=lambda: results.append(engine.client().health()))
    asker.start()
    asker.join(0.3)
    assert asker.is_alive() and results == []
    engine.resume()
    asker.join(5)
    assert results == [True]


def test_crash_at_start_carries_the_log(launch_fake: Launch) -> None:
    with pytest.raises(EngineCrashed, match="planted crash at start"):
        launch_fake("crash")


def test_hang_at_start_times_out_with_the_log(launch_fake: Launch, fake_setting: Setting) -> None:
    with pytest.raises(EngineTimeout, match=r"within 1 s.*fake engine: hang"):
        launch_fake("hang", setting=short_deadline(fake_setting, 1.0))


@pytest.mark.parametrize("behaviour", ["wrong_hash", "garbage_info"])
def test_an_engine_that_is_not_what_was_launched(launch_fake: Launch, behaviour: str) -> None:
    with pytest.raises(EngineProtocolError, match="server_info"):
        launch_fake(behaviour)
    assert ProcessRegistry().records() == []


def test_a_port_in_use_is_named(launch_fake: Launch) -> None:
    first = launch_fake()
    with pytest.raises(EngineError, match=f"port {first.port} .* in use"):
        launch_fake(launch_options={"port": first.port})


def test_a_lost_port_is_replaced(launch_fake: Launch, monkeypatch: pytest.MonkeyPatch) -> None:
    taken = launch_fake().port
    offers = iter([taken, taken, fresh_port("127.0.0.1")])
    monkeypatch.setattr("engines.launcher.fresh_port", lambda host: next(offers))
    engine = launch_fake()
    assert engine.port != taken and engine.client().health()


def test_pruning_spares_the_tree_of_a_running_engine(
    launch_fake: Launch, store: TreeStore, fake_setting: Setting
) -> None:
    engine = launch_fake(raw=True)
    other = store.checkout(import_stock(fake_setting, store).commit)
    assert store.prune() == [other.name] != [engine.tree_hash]
    engine.stop()
    assert store.prune() == [engine.tree_hash]


def test_the_context_manager_keeps_the_first_error(launch_fake: Launch) -> None:
    engine = launch_fake()
    with pytest.raises(KeyError), engine:
        raise KeyError("first")
    assert not engine.is_running()


def test_an_engine_outlives_the_thread_that_launched_it(launch_fake: Launch) -> None:
    engines: list[EngineProcess] = []
    thread = threading.Thread(target=lambda: engines.append(launch_fake()))
    thread.start()
    thread.join()
    time.sleep(0.2)
    assert engines[0].is_running() and engines[0].client().health()


FARM = """
import os, sys, time
from pathlib import Path
from engines.launcher import launch
from engines.registry import register_engine
from engines.resolve import import_stock, store_for
from engines.resolve import import_stock
from engines.tree_store import TreeStore
from settings.errors import ProvisionError
from settings.schema import Drafter, Setting
from tests.engines.conftest import FAKE
register_engine("fake", "tests.engines.fakes.driver:FakeDriver")
setting = Setting.model_validate(FAKE)
store = store_for(setting)
tree = store.commit_knobs(import_stock(setting, store).commit, {"behaviour": "orphans"})
engine = launch(setting, "stock", store.checkout(tree.commit), tree.tree_hash, Path("."))
engine.pause()
print(engine.pid, flush=True)
time.sleep(600)
"""


def start_farm(level: str) -> tuple[subprocess.Popen[bytes], list[psutil.Process]]:
    """A farm in a process of its own with a paused engine of three processes."""
    root = Path(exec_child.__file__).parent.parent
    variables = {**os.environ, "SPECFARM_SANDBOX": level}
    farm = subprocess.Popen(
        [sys.executable, "-c", FARM], stdout=subprocess.PIPE, cwd=root, env=variables
    )
    assert farm.stdout is not None
    with farm.stdout as said:
        leader = psutil.Process(int(said.readline()))
    processes = [leader, *leader.children(recursive=True)]
    assert len(processes) == 3
    return farm, processes


def test_a_killed_farm_leaves_nothing(data_folder: Path, launch_fake: Launch) -> None:
    farm, processes = start_farm("auto")
    mine = launch_fake()
    assert ProcessRegistry().reap_leftovers() == []
    farm.kill()
    farm.wait()
    psutil.wait_procs(processes, timeout=10)
    assert gone(processes)
    assert mine.is_running()
    ProcessRegistry().reap_leftovers()
    assert [r.pid for r in ProcessRegistry().records()] == [mine.pid]


def test_leftovers_of_a_farm_killed_with_its_keepers_are_ended(
    data_folder: Path, launch_fake: Launch
) -> None:
    farm, processes = start_farm("rlimits")
    leader = processes[0]
    mine = launch_fake()
    psutil.Process(leader.ppid()).kill()
    farm.kill()
    farm.wait()
    # The leader dies with its keeper; its children do not.
    psutil.wait_procs([leader], timeout=5)
    assert gone([leader]) and not gone(processes)
    ended = ProcessRegistry().reap_leftovers(grace_s=0.2)
    assert [r.pid for r in ended] == [leader.pid]
    assert gone(processes)
    assert mine.is_running()
    assert [r.pid for r in ProcessRegistry().records()] == [mine.pid]


def test_a_reused_pid_is_not_ended(data_folder: Path, launch_fake: Launch) -> None:
    """A record whose pid now belongs to someone else must end nobody."""
    engine = launch_fake()
    registry = ProcessRegistry()
    (record,) = registry.records()
    with subprocess.Popen(["sleep", "60"], start_new_session=True) as stranger:
        stale = {**record.__dict__, "launch_id": "f" * 32, "owner_pid": 2**22 + 1}
        stale |= {"pid": stranger.pid, "keeper_pid": stranger.pid, "scratch": "/nonexistent"}
        registry.write(type(record)(**stale))
        assert registry.reap_leftovers() == []
        assert stranger.poll() is None
        stranger.kill()
    assert engine.is_running()
