"""What /proc says of a process: identity is pid plus start time, for pids are used again.

Standard library only: the confined child uses it too.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class ProcStat:
    """Fields of /proc/<pid>/stat (proc(5)); `start_time` is field 22, clock ticks since boot."""

    pid: int
    name: str
    state: str
    parent: int
    group: int
    session: int
    start_time: int


def proc_stat(pid: int) -> ProcStat | None:
    """None where there is no such process."""
    return _stat(Path(f"/proc/{pid}/stat"))


def _stat(path: Path) -> ProcStat | None:
    try:
        text = path.read_text(errors="replace")
    except OSError:
        return None
    # The command name may hold blanks and brackets: it ends with the last ")".
    head, _, tail = text.rpartition(")")
    pid, _, name = head.partition(" (")
    fields = tail.split()
    numbers = (int(fields[i]) for i in (1, 2, 3, 19))
    return ProcStat(int(pid), name, fields[0], *numbers)


def is_alive(stat: ProcStat) -> bool:
    """Whether it still runs. A zombie does not, unless only its first thread has ended."""
    if stat.state == "X":
        return False
    return stat.state != "Z" or any(
        thread is not None and thread.state not in "ZX"
        for thread in map(_stat, Path(f"/proc/{stat.pid}/task").glob("*/stat"))
    )


def is_running(pid: int, start_time: int) -> bool:
    """Whether exactly that process still runs."""
    stat = proc_stat(pid)
    return stat is not None and stat.start_time == start_time and is_alive(stat)


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


def children_of(pid: int) -> list[int]:
    """Its children, zombies included; all of them only if none ends or starts meanwhile."""
    found = []
    try:
        for path in Path(f"/proc/{pid}/task").glob("*/children"):
            found += [int(child) for child in path.read_text().split()]
    except OSError:
        return []
    # A kernel without CONFIG_PROC_CHILDREN has no such file.
    return found or [stat.pid for stat in all_processes() if stat.parent == pid]


def descendants_of(pid: int, processes: Iterable[ProcStat]) -> set[int]:
    """Those among `processes` that stem from `pid`."""
    children: dict[int, list[int]] = {}
    for stat in processes:
        children.setdefault(stat.parent, []).append(stat.pid)
    found: set[int] = set()
    ahead = [pid]
    while ahead:
        for child in children.get(ahead.pop(), ()):
            if child not in found:
                found.add(child)
                ahead.append(child)
    return found


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
