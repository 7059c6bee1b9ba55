"""Ends all processes of a launch, and tells which of them had left the engine's session to stay."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable

from engines.errors import EngineTimeout
from engines.proc_files import ProcStat
from engines.process_record import ProcessRecord

KILL_WAIT_S = 10.0
# Helpers in sessions of their own (compile workers) end when their pipe to the engine closes.
FOLLOW_S = 1.0


def end_processes(record: ProcessRecord, grace_s: float) -> tuple[str, ...]:
    """SIGTERM to the engine's session, after `grace_s` seconds SIGKILL; then an end to whatever
    lives outside it. Stopped processes are ended too.

    Returns:
        Names of the commands that had escaped: out of the engine's session and adopted by the
        keeper (a daemon) when this began, or alive a second after the session had ended. A name is
        what the process calls itself.

    Raises:
        EngineTimeout: a process survived SIGKILL for ten seconds (uninterruptible in the kernel).
    """
    escaped = {s.pid: s.name for s in _outside(record) if s.parent == record.keeper_pid}
    if not _end(record, _session, signal.SIGTERM, grace_s):
        _end(record, _session, signal.SIGKILL, KILL_WAIT_S)
    if not _until(lambda: not _outside(record), FOLLOW_S):
        escaped |= {stat.pid: stat.name for stat in _outside(record)}
    _end_keeper(record)
    # Without a keeper they are still here.
    if not _end(record, ProcessRecord.member_stats, signal.SIGKILL, KILL_WAIT_S):
        raise EngineTimeout(f"processes {record.members()} of {record.arm} survived SIGKILL")
    return tuple(escaped.values())


def _inside(stat: ProcStat, record: ProcessRecord) -> bool:
    # The leader has no session of its own for a moment after its start.
    return record.pid in (stat.session, stat.pid)


def _session(record: ProcessRecord) -> list[ProcStat]:
    return [stat for stat in record.member_stats() if _inside(stat, record)]


def _outside(record: ProcessRecord) -> list[ProcStat]:
    return [stat for stat in record.member_stats() if not _inside(stat, record)]


def _end(
    record: ProcessRecord,
    targets: Callable[[ProcessRecord], list[ProcStat]],
    number: signal.Signals,
    wait_s: float,
) -> bool:
    """Whether all `targets` are gone within `wait_s` seconds; new ones get the signal too."""
    deadline = time.monotonic() + wait_s
    while found := targets(record):
        for stat in found:
            _send(stat.pid, number)
            # A stopped process takes its SIGTERM only once it is continued.
            _send(stat.pid, signal.SIGCONT)
        left = deadline - time.monotonic()
        if not _until(lambda: not targets(record), min(left, 1.0)) and left <= 0:
            return False
    return True


def _end_keeper(record: ProcessRecord) -> None:
    """It kills all that is left, faster than it could be listed from here, and then ends."""
    for number, wait_s in ((signal.SIGTERM, KILL_WAIT_S), (signal.SIGKILL, 1.0)):
        if not record.keeper_is_running():
            return
        _send(record.keeper_pid, number)
        _until(lambda: not record.keeper_is_running(), wait_s)


def _send(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def _until(reached: Callable[[], bool], wait_s: float) -> bool:
    deadline = time.monotonic() + wait_s
    while not reached():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True
