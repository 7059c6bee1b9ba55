"""One machine-wide lock that is held while anything is timed.

Two timings at once measure each other. The lock is a POSIX file lock at a fixed path per machine
(`/tmp/specfarm-timing.lock`, or `$SPECFARM_TIMING_LOCK`), not in the data folder: two farms with
different data folders still share the cores. The kernel drops it when its holder dies, so a killed
farm never leaves it behind. It is re-entrant within a process.

Processes that work for one campaign share an owner (`$SPECFARM_TIMING_OWNER`): what they wait for
each other is the campaign's own time, what they wait for others is not.
"""

from __future__ import annotations

import fcntl
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from settings.errors import SpecfarmError

DEFAULT_PATH = "/tmp/specfarm-timing.lock"
OWNER_VARIABLE = "SPECFARM_TIMING_OWNER"
TELL_AFTER_S = 2.0
TELL_EVERY_S = 30.0
_POLL_S = 0.2
_guard = threading.RLock()
_depth: dict[str, int] = {}


class TimingLockError(SpecfarmError):
    """Another process times on this machine and the caller would not wait any longer."""


@dataclass(frozen=True)
class Holder:
    """Who holds the lock: `purpose` is what it times, `since` its local time of day."""

    pid: int
    purpose: str
    since: str
    owner: str

    def __str__(self) -> str:
        return f"pid {self.pid}: {self.purpose}, since {self.since}"


_UNKNOWN = Holder(0, "an unknown process", "an unknown time", "")


def lock_path() -> Path:
    """Where the lock of this machine lives."""
    return Path(os.environ.get("SPECFARM_TIMING_LOCK") or DEFAULT_PATH)


def owner() -> str:
    """Whom this process times for."""
    return os.environ.get(OWNER_VARIABLE) or f"process {os.getpid()}"


def holder() -> Holder | None:
    """Who holds the lock now, None when it is free."""
    try:
        descriptor = os.open(lock_path(), os.O_RDWR | os.O_NOFOLLOW)
    except FileNotFoundError:
        return None
    try:
        # Shared: those who only look do not stand in each other's way.
        if _try_lock(descriptor, fcntl.LOCK_SH):
            return None
        return _note(descriptor)
    finally:
        os.close(descriptor)


def say_waiting(who: Holder, seconds: float) -> None:
    """One line on stderr."""
    text = f"waiting for the machine's timing lock ({who}), {seconds:.0f} s so far"
    print(text, file=sys.stderr, flush=True)


@contextmanager
def timing_lock(
    purpose: str,
    *,
    timeout_s: float | None = None,
    on_wait: Callable[[Holder, float], None] = say_waiting,
) -> Iterator[float]:
    """Hold the machine's timing lock; yields the seconds it was waited for while another owner
    held it.

    Args:
        purpose: what is timed; shown to whoever waits.
        timeout_s: give up after so many seconds; None waits for ever.
        on_wait: called after `TELL_AFTER_S` and then every `TELL_EVERY_S` seconds with who holds
            it and the seconds waited.

    Raises:
        TimingLockError: the timeout passed.
    """
    path = lock_path()
    with _guard:
        if _depth.get(str(path), 0):
            _depth[str(path)] += 1
            try:
                yield 0.0
            finally:
                _depth[str(path)] -= 1
            return
        descriptor = _open(path)
        try:
            waited_s = _acquire(descriptor, timeout_s, on_wait)
            _announce(descriptor, purpose)
            _depth[str(path)] = 1
            try:
                yield waited_s
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
    descriptor: int, timeout_s: float | None, on_wait: Callable[[Holder, float], None]
) -> float:
    """Seconds waited for other owners."""
    start = seen = time.monotonic()
    next_word = TELL_AFTER_S
    for_others = 0.0
    while not _try_lock(descriptor, fcntl.LOCK_EX):
        who = _note(descriptor)
        waited = seen - start
        if timeout_s is not None and waited >= timeout_s:
            raise TimingLockError(
                f"the machine's timing lock is held by {who}",
                "Wait for it to end, or allow a longer wait.",
            )
        if waited >= next_word:
            on_wait(who, waited)
            next_word = waited + TELL_EVERY_S
        time.sleep(_POLL_S)
        now = time.monotonic()
        if who.owner != owner():
            for_others += now - seen
        seen = now
    return for_others


def _try_lock(descriptor: int, kind: int) -> bool:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _announce(descriptor: int, purpose: str) -> None:
    note = {
        "pid": os.getpid(),
        "purpose": purpose,
        "since": time.strftime("%H:%M:%S"),
        "owner": owner(),
    }
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, json.dumps(note).encode(), 0)


def _note(descriptor: int) -> Holder:
    try:
        note = json.loads(os.pread(descriptor, 4096, 0))
        fields = (str(note[name]) for name in ("purpose", "since", "owner"))
        return Holder(int(note["pid"]), *fields)
    except (ValueError, KeyError, TypeError):
        return _UNKNOWN
