"""Starts children from one thread that lives as long as the process.

PR_SET_PDEATHSIG fires when the *thread* that forked ends, not only the process: started from a
worker thread, an engine would die with that thread.
"""

from __future__ import annotations

import os
import queue
import subprocess
import threading
from collections.abc import Callable
from concurrent.futures import Future

_lock = threading.Lock()
_jobs: queue.SimpleQueue[
    tuple[Future[subprocess.Popen[bytes]], Callable[[], subprocess.Popen[bytes]]]
]
_owner = 0


def _serve() -> None:
    while True:
        future, start = _jobs.get()
        try:
            future.set_result(start())
        except BaseException as error:
            future.set_exception(error)


def spawn(start: Callable[[], subprocess.Popen[bytes]]) -> subprocess.Popen[bytes]:
    """Run `start` (which calls Popen) on the process's spawner thread."""
    global _jobs, _owner
    with _lock:
        if _owner != os.getpid():
            _jobs, _owner = queue.SimpleQueue(), os.getpid()
            threading.Thread(target=_serve, name="engine-spawner", daemon=True).start()
    future: Future[subprocess.Popen[bytes]] = Future()
    _jobs.put((future, start))
    return future.result()
