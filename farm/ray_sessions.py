"""Every local cluster leaves a folder of logs and sockets; the next start removes old ones.

Only folders that Ray named (`session_<date>_<pid>`), that this user owns, whose driver is gone,
which no process mentions on its command line and in which nothing was written for a while. The
newest of them stay, to be read after a failure, and one start removes a bounded number.
"""

from __future__ import annotations

import os
import re
import shutil
import time
from pathlib import Path

import psutil

KEPT = 3
MOST_REMOVED = 50
QUIET_S = 600.0
_NAME = re.compile(r"^session_(\d{4}-\d\d-\d\d_\d\d-\d\d-\d\d)_\d+_(\d+)$")
# A process this much younger than a session of its pid is another one.
_CLOCK_S = 5.0


def clear_sessions(folder: Path) -> list[Path]:
    """Removes dead sessions of `folder`, all but the `KEPT` newest; what was removed."""
    ours = [path for path in folder.iterdir() if _is_ours(path)]
    mentioned = _command_lines()
    dead = sorted((path for path in ours if _is_dead(path, mentioned)), key=lambda path: path.name)
    removed = dead[: max(0, len(dead) - KEPT)][:MOST_REMOVED]
    for path in removed:
        shutil.rmtree(path, ignore_errors=True)
    return removed


def _is_ours(path: Path) -> bool:
    if _NAME.match(path.name) is None or path.is_symlink() or not path.is_dir():
        return False
    return path.stat().st_uid == os.getuid()


def _is_dead(path: Path, mentioned: str) -> bool:
    found = _NAME.match(path.name)
    assert found is not None
    try:
        started = time.mktime(time.strptime(found[1], "%Y-%m-%d_%H-%M-%S"))
        written = _last_written(path)
    except (ValueError, OSError):
        # Not Ray's, or somebody is at work in it.
        return False
    if _driver_runs(int(found[2]), started) or path.name in mentioned:
        return False
    return time.time() - written > QUIET_S


def _driver_runs(pid: int, started: float) -> bool:
    try:
        return psutil.Process(pid).create_time() <= started + _CLOCK_S
    except psutil.NoSuchProcess:
        return False
    except psutil.Error:
        return True


def _command_lines() -> str:
    """All that run, raylets and workers among them: Ray names the session on their command line."""
    found: list[str] = []
    for process in psutil.process_iter(["cmdline"]):
        found += process.info["cmdline"] or []
    return "\n".join(found)


def _last_written(path: Path) -> float:
    """A live session's logs grow; another PID namespace's drivers cannot be seen otherwise."""
    newest = path.stat().st_mtime
    for child in (*path.iterdir(), *(path / "logs").glob("*")):
        newest = max(newest, child.lstat().st_mtime)
    return newest
