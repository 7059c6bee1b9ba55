"""What /proc says of a process: identity is pid plus start time, for pids are used again."""

from __future__ import annotations

from collections.abc import Iterator
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


def boot_id() -> str:
    """Start times only compare within one boot."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
