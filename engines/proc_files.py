"""What /proc says of a process: identity is pid plus start time, for pids are used again."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class ProcStat:
    """Fields of /proc/<pid>/stat (proc(5)); `start_time` is field 22, clock ticks since boot."""

    pid: int
    state: str
    parent: int
    group: int
    session: int
    start_time: int


def proc_stat(pid: int) -> ProcStat | None:
    """None where there is no such process."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return None
    # The command name may hold blanks and brackets: fields start after the last ")".
    fields = text[text.rindex(")") + 2 :].split()
    return ProcStat(pid, fields[0], int(fields[1]), int(fields[2]), int(fields[3]), int(fields[19]))


def is_running(pid: int, start_time: int) -> bool:
    """Whether exactly that process still runs (a zombie does not)."""
    stat = proc_stat(pid)
    return stat is not None and stat.start_time == start_time and stat.state not in "ZX"


def has_variable(pid: int, setting: bytes) -> bool:
    """Whether the process was started with `NAME=value` in its environment."""
    try:
        return setting in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return False


def all_processes() -> Iterator[ProcStat]:
    """Every process that can be seen."""
    for path in Path("/proc").iterdir():
        if path.name.isdigit():
            stat = proc_stat(int(path.name))
            if stat is not None:
                yield stat


def listens(pids: Iterable[int], port: int) -> bool:
    """Whether one of the processes holds a listening TCP socket on `port` (proc_net(5))."""
    sockets = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with contextlib.suppress(OSError):
            for line in Path(table).read_text().splitlines()[1:]:
                fields = line.split()
                if fields[3] == "0A" and int(fields[1].rsplit(":", 1)[1], 16) == port:
                    sockets.add(f"socket:[{fields[9]}]")
    for pid in pids:
        with contextlib.suppress(OSError):
            for descriptor in Path(f"/proc/{pid}/fd").iterdir():
                with contextlib.suppress(OSError):
                    if str(descriptor.readlink()) in sockets:
                        return True
    return False


def boot_id() -> str:
    """Start times only compare within one boot."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
