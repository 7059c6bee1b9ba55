"""One launch of an engine: which processes it is made of, and whose it is.

Members are the descendants of the engine's keeper (engines/sandbox/keeper.py), which nothing an
engine starts can get away from. Should the keeper itself be gone, they are found by session, and by
a launch id in their environment; never by name.
"""

from __future__ import annotations

import os
import uuid
from dataclasses import dataclass

from engines.proc_files import (
    ProcStat,
    all_processes,
    boot_id,
    descendants_of,
    has_variable,
    is_alive,
    is_running,
    proc_stat,
)

LAUNCH_ID = "ENGINE_LAUNCH_ID"


@dataclass(frozen=True)
class ProcessRecord:
    """`pid` leads the engine's own session and group, `keeper_pid` is its parent; both 0 until they
    have started. Times in clock ticks. `sandbox` is the level's name."""

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
    sandbox: str = ""
    pid: int = 0
    start_time: int = 0
    keeper_pid: int = 0
    keeper_start_time: int = 0

    @property
    def marker(self) -> bytes:
        return f"{LAUNCH_ID}={self.launch_id}".encode()

    def owner_is_running(self) -> bool:
        return self.boot == boot_id() and is_running(self.owner_pid, self.owner_start_time)

    def keeper_is_running(self) -> bool:
        return self.boot == boot_id() and is_running(self.keeper_pid, self.keeper_start_time)

    def members(self) -> list[int]:
        """Pids of this launch that still run (zombies do not)."""
        return [stat.pid for stat in self.member_stats()]

    def member_stats(self) -> list[ProcStat]:
        """As `members`, with what /proc says of each."""
        if self.boot != boot_id():
            return []
        processes = list(all_processes())
        session = self._session()
        kept = self.keeper_is_running()
        below = descendants_of(self.keeper_pid, processes) if kept else set()
        return [
            stat
            for stat in processes
            if stat.pid not in (os.getpid(), self.keeper_pid)
            and (
                stat.pid in below
                or stat.session == session
                or (not kept and has_variable(stat.pid, self.marker))
            )
            and is_alive(stat)
        ]

    def _session(self) -> int | None:
        """None when the leader's number may be someone else's by now."""
        leader = proc_stat(self.pid) if self.pid else None
        return self.pid if leader and leader.start_time == self.start_time else None


def new_record(
    *,
    setting: str,
    arm: str,
    tree_hash: str,
    port: int,
    purpose: str,
    scratch: str,
    sandbox: str = "",
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
        sandbox=sandbox,
    )
