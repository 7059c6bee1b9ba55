"""What an engine leaves behind is found, named and ended under each level; the oracle is psutil."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable

import psutil
import pytest

from engines.engine_process import EngineProcess
from engines.proc_files import is_alive, proc_stat
from engines.process_registry import ProcessRegistry

from .conftest import Probe, StartProbe


def marked(mark: str, name: str = "") -> list[psutil.Process]:
    """Processes with `mark` on their command line, of that name if one is given."""
    found = []
    for process in psutil.process_iter():
        try:
            mine = mark in process.cmdline() and process.pid != os.getpid()
            if mine and name in ("", process.name()):
                found.append(process)
        except psutil.Error:
            continue
    return found


def wait_for(reached: Callable[[], object], seconds: float = 10.0) -> None:
    deadline = time.monotonic() + seconds
    while not reached():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def keeper_of(engine: EngineProcess) -> psutil.Process:
    (record,) = (r for r in ProcessRegistry().records() if r.pid == engine.pid)
    assert psutil.Process(engine.pid).ppid() == record.keeper_pid
    return psutil.Process(record.keeper_pid)


@pytest.fixture
def probe(start_probe: StartProbe) -> Probe:
    return start_probe()


def test_a_daemon_is_ended_and_named(probe: Probe) -> None:
    mark = f"61{os.getpid()}"
    assert probe.attempt("leave_daemon", mark=mark)[0]
    wait_for(lambda: marked(mark, "sleep"))
    (daemon,) = marked(mark, "sleep")
    # It has left the session, and nothing in its environment says whose it is.
    assert os.getsid(daemon.pid) != os.getsid(probe.engine.pid)
    assert daemon.environ() == {}
    probe.engine.stop()
    assert probe.engine.escaped == ("sleep",)
    assert not daemon.is_running()


def test_a_daemon_of_an_engine_that_crashed_is_ended(probe: Probe) -> None:
    mark = f"62{os.getpid()}"
    assert probe.attempt("leave_daemon", mark=mark)[0]
    wait_for(lambda: marked(mark, "sleep"))
    os.kill(probe.engine.pid, signal.SIGKILL)
    wait_for(lambda: not probe.engine.is_running())
    assert marked(mark)
    probe.engine.stop(grace_s=0.2)
    assert probe.engine.escaped == ("sleep",) and marked(mark) == []


def test_a_chain_of_short_lived_processes_is_ended(probe: Probe) -> None:
    mark = f"63{os.getpid()}"
    assert probe.attempt("leave_hopper", mark=mark)[0]
    wait_for(lambda: marked(mark))
    probe.engine.stop(grace_s=0.5)
    for _ in range(20):
        assert marked(mark) == []
        time.sleep(0.01)


def test_a_process_without_its_first_thread_is_ended(probe: Probe) -> None:
    mark = f"64{os.getpid()}"
    before = set(psutil.pids())
    assert probe.attempt("leave_headless", mark=mark)[0]
    # Its command line is gone with its first thread.
    headless: list[int] = []

    def appeared() -> bool:
        for pid in set(psutil.pids()) - before:
            stat = proc_stat(pid)
            if stat is not None and stat.state == "Z" and is_alive(stat):
                headless.append(pid)
        return bool(headless)

    wait_for(appeared)
    probe.engine.stop()
    assert len(probe.engine.escaped) == 1
    assert not psutil.pid_exists(headless[0])


def test_a_quiet_engine_leaves_nothing(probe: Probe) -> None:
    keeper, engine = keeper_of(probe.engine), psutil.Process(probe.engine.pid)
    assert os.getsid(engine.pid) == engine.pid != os.getsid(keeper.pid)
    probe.engine.stop()
    assert probe.engine.escaped == ()
    assert not keeper.is_running() and not engine.is_running()


def test_the_engine_ends_with_its_keeper(probe: Probe) -> None:
    keeper = keeper_of(probe.engine)
    mark = f"65{os.getpid()}"
    assert probe.attempt("leave_daemon", mark=mark)[0]
    wait_for(lambda: marked(mark, "sleep"))
    # SIGTERM is how the farm's death reaches it.
    keeper.send_signal(signal.SIGTERM)
    wait_for(lambda: not probe.engine.is_running() and not marked(mark))
    probe.engine.stop()


def test_a_killed_keeper_takes_the_engine_along(probe: Probe) -> None:
    keeper_of(probe.engine).kill()
    wait_for(lambda: not probe.engine.is_running())
    probe.engine.stop(grace_s=0.2)


def test_a_pause_stops_the_engine_and_not_its_keeper(probe: Probe) -> None:
    keeper, engine = keeper_of(probe.engine), psutil.Process(probe.engine.pid)
    probe.engine.pause()
    wait_for(lambda: engine.status() == psutil.STATUS_STOPPED)
    assert keeper.status() != psutil.STATUS_STOPPED
    probe.engine.resume()
    assert probe.engine.client().health()
