"""One machine-wide lock that is held while anything is timed.

Two timings at once measure each other. The lock is a POSIX file lock at a fixed path per machine
(`/tmp/specfarm-timing.lock`, or `$SPECFARM_TIMING_LOCK`), not in the data folder: two farms with
different data folders still share the cores. The kernel drops it when its holder dies, so a killed
farm never leaves it behind. It is re-entrant within a process.
"""

from __future__ import annotations

import fcntl
import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from settings.errors import SpecfarmError

DEFAULT_PATH = "/tmp/specfarm-timing.lock"
_POLL_S = 0.2
_TELL_EVERY_S = 10.0
_guard = threading.RLock()
_depth: dict[str, int] = {}


class TimingLockError(SpecfarmError):
    """Another process times on this machine and the caller would not wait any longer."""


def lock_path() -> Path:
    """Where the lock of this machine lives."""
    return Path(os.environ.get("SPECFARM_TIMING_LOCK") or DEFAULT_PATH)


def holder() -> str | None:
    """Who holds the lock now (`pid 12: bench, since 14:03:11`), None when it is free."""
    try:
        descriptor = os.open(lock_path(), os.O_RDWR | os.O_NOFOLLOW)
    except FileNotFoundError:
        return None
    try:
        if _try_lock(descriptor):
            fcntl.flock(descriptor, fcntl.LOCK_UN)
            return None
        return _describe(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def timing_lock(
    purpose: str,
    *,
    timeout_s: float | None = None,
    on_wait: Callable[[str, float], None] | None = None,
) -> Iterator[None]:
    """Hold the machine's timing lock.

    Args:
        purpose: what is timed; shown to whoever waits.
        timeout_s: give up after so many seconds; None waits for ever.
        on_wait: called at once and then every ten seconds with (who holds it, seconds waited).

    Raises:
        TimingLockError: the timeout passed.
    """
    path = lock_path()
    with _guard:
        if _depth.get(str(path), 0):
            _depth[str(path)] += 1
            try:
                yield
            finally:
                _depth[str(path)] -= 1
            return
        descriptor = _open(path)
        try:
            _acquire(descriptor, timeout_s, on_wait)
            _announce(descriptor, purpose)
            _depth[str(path)] = 1
            try:
                yield
            finally:
                _depth[str(path)] = 0
                os.ftruncate(descriptor, 0)
        finally:
            os.close(descriptor)


def _open(path: Path) -> int:
    # Without O_CREAT first: a sticky /tmp refuses O_CREAT on a file another user owns.
    try:
        return os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
        os.fchmod(descriptor, 0o666)
        return descriptor
    except PermissionError as error:
        raise TimingLockError(
            f"the timing lock {path} cannot be opened ({error.strerror})",
            "Delete it, or name another path in SPECFARM_TIMING_LOCK.",
        ) from error


def _acquire(
    descriptor: int, timeout_s: float | None, on_wait: Callable[[str, float], None] | None
) -> None:
    start = time.monotonic()
    told = -_TELL_EVERY_S
    while not _try_lock(descriptor):
        waited = time.monotonic() - start
        if timeout_s is not None and waited >= timeout_s:
            raise TimingLockError(
                f"the machine's timing lock is held by {_describe(descriptor)}",
                "Wait for it to end, or allow a longer wait.",
            )
        if on_wait is not None and waited - told >= _TELL_EVERY_S:
            on_wait(_describe(descriptor), waited)
            told = waited
        time.sleep(_POLL_S)


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _announce(descriptor: int, purpose: str) -> None:
    note = {"pid": os.getpid(), "purpose": purpose, "since": time.strftime("%H:%M:%S")}
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, json.dumps(note).encode(), 0)


def _describe(descriptor: int) -> str:
    try:
        note = json.loads(os.pread(descriptor, 4096, 0))
        return f"pid {note['pid']}: {note['purpose']}, since {note['since']}"
    except (ValueError, KeyError, TypeError):
        return "an unknown process"
