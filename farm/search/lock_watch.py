"""Says on the driver's terminal what a campaign's workers wait for: they have none of their own."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import TracebackType

from farm.timing_lock import TELL_AFTER_S, TELL_EVERY_S, Holder, holder, owner

_POLL_S = 1.0


class LockWatch:
    """While open, calls `say` when another owner holds this machine's timing lock: after
    `TELL_AFTER_S`, then every `TELL_EVERY_S` seconds. Workers on other machines are not seen."""

    def __init__(self, say: Callable[[str], None], poll_s: float = _POLL_S) -> None:
        self._say = say
        self._poll_s = poll_s
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="lock-watch", daemon=True)

    def __enter__(self) -> LockWatch:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._closed.set()
        self._thread.join()

    def _run(self) -> None:
        since: float | None = None
        next_word = TELL_AFTER_S
        while not self._closed.wait(self._poll_s):
            who = _foreign()
            if who is None:
                since, next_word = None, TELL_AFTER_S
                continue
            now = time.monotonic()
            since = now if since is None else since
            if now - since >= next_word:
                self._say(
                    f"measurements wait for another timing on this machine ({who}); the budget "
                    "stands still meanwhile"
                )
                next_word = now - since + TELL_EVERY_S


def _foreign() -> Holder | None:
    """The lock's holder where that is another owner's process."""
    try:
        who = holder()
    except OSError:
        # Another user's lock file: the workers say so themselves.
        return None
    return None if who is None or who.owner == owner() else who
