"""Every engine ever started and not yet seen to end, on disk, so that none outlives its farm.

A record is written before the process starts and removed after its last member is gone. Members
are found by session, and by a launch id in their environment (which a child that makes a session
of its own still carries); never by name. A child that also clears its environment is not found.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import time
import uuid
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from engines.errors import EngineTimeout
from engines.proc_files import all_processes, boot_id, has_variable, is_running, proc_stat
from settings.paths import work_dir

LAUNCH_ID = "ENGINE_LAUNCH_ID"


@dataclass(frozen=True)
class ProcessRecord:
    """`pid` leads its own session and group; 0 until it has started. Times in clock ticks."""

    launch_id: str
    owner_pid: int
    owner_start_time: int
    boot: str
    setting: str
    arm: str
    tree_hash: str
    port: int
    purpose: str
    scratch: str
    pid: int = 0
    start_time: int = 0

    @property
    def marker(self) -> bytes:
        return f"{LAUNCH_ID}={self.launch_id}".encode()

    def owner_is_running(self) -> bool:
        return self.boot == boot_id() and is_running(self.owner_pid, self.owner_start_time)

    def members(self) -> list[int]:
        """Pids of this launch that still run (zombies do not)."""
        if self.boot != boot_id():
            return []
        leader = proc_stat(self.pid) if self.pid else None
        session = self.pid if leader and leader.start_time == self.start_time else None
        return [
            stat.pid
            for stat in all_processes()
            if stat.state not in "ZX"
            and stat.pid != os.getpid()
            and (stat.session == session or has_variable(stat.pid, self.marker))
        ]


def new_record(
    *, setting: str, arm: str, tree_hash: str, port: int, purpose: str, scratch: str
) -> ProcessRecord:
    """A record owned by this process, for an engine about to start."""
    me = proc_stat(os.getpid())
    assert me is not None
    return ProcessRecord(
        launch_id=uuid.uuid4().hex,
        owner_pid=me.pid,
        owner_start_time=me.start_time,
        boot=boot_id(),
        setting=setting,
        arm=arm,
        tree_hash=tree_hash,
        port=port,
        purpose=purpose,
        scratch=scratch,
    )


class ProcessRegistry:
    """Records as JSON files in `folder` (default `work/processes`)."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder or work_dir("processes")

    def write(self, record: ProcessRecord) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / f"{record.launch_id}.json"
        draft = path.with_suffix(".tmp")
        draft.write_text(json.dumps(asdict(record), indent=1))
        draft.replace(path)

    def started(self, record: ProcessRecord, pid: int) -> ProcessRecord:
        """The record with its process filled in, written."""
        stat = proc_stat(pid)
        full = replace(record, pid=pid, start_time=stat.start_time if stat else 0)
        self.write(full)
        return full

    def forget(self, record: ProcessRecord) -> None:
        """Drop a record and its scratch folder; its processes must be gone."""
        shutil.rmtree(record.scratch, ignore_errors=True)
        (self.folder / f"{record.launch_id}.json").unlink(missing_ok=True)

    def records(self) -> list[ProcessRecord]:
        """All readable records."""
        found = []
        for path in sorted(self.folder.glob("*.json")):
            # Removed by its owner meanwhile, or written by another version: not ours to judge.
            with contextlib.suppress(OSError, ValueError, TypeError):
                found.append(ProcessRecord(**json.loads(path.read_text())))
        return found

    def reap_leftovers(self, grace_s: float = 3.0) -> list[ProcessRecord]:
        """End the engines of farms that are gone; the records that still had processes."""
        ended = []
        for record in self.records():
            if record.owner_is_running():
                continue
            if record.members():
                end_processes(record, grace_s)
                ended.append(record)
            self.forget(record)
        return ended


def end_processes(record: ProcessRecord, grace_s: float) -> None:
    """SIGTERM, then after `grace_s` seconds SIGKILL, to every member, stopped ones included.

    Raises:
        EngineTimeout: a member survived SIGKILL for ten seconds (uninterruptible in the kernel).
    """
    for number, wait_s in ((signal.SIGTERM, grace_s), (signal.SIGKILL, 10.0)):
        deadline = time.monotonic() + wait_s
        while members := record.members():
            for pid in members:
                _send(pid, number)
                # A stopped process takes its SIGTERM only once it is continued.
                _send(pid, signal.SIGCONT)
            if _wait_until_gone(record, min(deadline, time.monotonic() + 1.0)):
                return
            if time.monotonic() > deadline:
                break
        else:
            return
    raise EngineTimeout(f"processes {record.members()} of {record.arm} survived SIGKILL")


def _send(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def _wait_until_gone(record: ProcessRecord, deadline: float) -> bool:
    while record.members():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True
