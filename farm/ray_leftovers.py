"""Ray's own helper processes outlive a driver that is killed; the next start ends them.

They are recorded when a local cluster starts, with the time each process began, and ended only if
that still matches and their driver is gone.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
from pathlib import Path

import psutil

from engines.proc_files import proc_stat
from settings.paths import work_dir


def record_cluster() -> None:
    """Writes down this process and all its descendants (call it after `ray.init`)."""
    children = psutil.Process().children(recursive=True)
    found = {str(child.pid): _start(child.pid) for child in children}
    record = {"owner": os.getpid(), "owner_start": _start(os.getpid()), "processes": found}
    path = _folder() / f"{os.getpid()}.json"
    draft = path.with_suffix(".tmp")
    draft.write_text(json.dumps(record))
    draft.replace(path)


def forget_cluster() -> None:
    """Drops this process's record (call it after `ray.shutdown`)."""
    (_folder() / f"{os.getpid()}.json").unlink(missing_ok=True)


def reap_clusters() -> int:
    """Ends recorded processes whose driver is gone; returns how many there were."""
    ended = 0
    for path in _folder().glob("*.json"):
        with contextlib.suppress(OSError, ValueError, KeyError):
            record = json.loads(path.read_text())
            if _start(record["owner"]) == record["owner_start"]:
                continue
            for pid, start in record["processes"].items():
                if start and _start(int(pid)) == start:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(int(pid), signal.SIGKILL)
                        ended += 1
            path.unlink(missing_ok=True)
    return ended


def _folder() -> Path:
    return work_dir("ray")


def _start(pid: int) -> int:
    stat = proc_stat(pid)
    return 0 if stat is None else stat.start_time
