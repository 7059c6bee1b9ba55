"""Sockets that keep one deadline for a whole HTTP exchange: connecting, headers and every read.

A timeout of one read bounds nothing: an engine that sends a byte now and then, or "100 Continue"
for ever, would hold its client as long as it likes.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import httpcore


class Deadline(threading.local):
    """Each thread's own: the monotonic second by which its exchange must have ended."""

    at: float = math.inf

    @contextmanager
    def within(self, seconds: float) -> Iterator[float]:
        """Sets the deadline for the block; gives the monotonic second it falls on."""
        self.at = time.monotonic() + seconds
        try:
            yield self.at
        finally:
            self.at = math.inf

    def left(self, error: type[httpcore.TimeoutException]) -> float | None:
        """Seconds left, None without a deadline; raises `error` once it has passed."""
        if self.at == math.inf:
            return None
        left = self.at - time.monotonic()
        if left <= 0:
            raise error("the deadline of the exchange has passed")
        return left


class DeadlineNetwork(httpcore.NetworkBackend):
    """Plain TCP under a `Deadline`; timeouts of the caller's own are not needed."""

    def __init__(self, deadline: Deadline) -> None:
        self._deadline = deadline
        self._plain = httpcore.SyncBackend()

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.NetworkStream:
        left = self._deadline.left(httpcore.ConnectTimeout)
        plain = self._plain.connect_tcp(host, port, left, local_address, socket_options)
        return _DeadlineStream(plain, self._deadline)


class _DeadlineStream(httpcore.NetworkStream):
    def __init__(self, plain: httpcore.NetworkStream, deadline: Deadline) -> None:
        self._plain = plain
        self._deadline = deadline

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._plain.read(max_bytes, self._deadline.left(httpcore.ReadTimeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._plain.write(buffer, self._deadline.left(httpcore.WriteTimeout))

    def close(self) -> None:
        self._plain.close()

    def get_extra_info(self, info: str) -> Any:
        return self._plain.get_extra_info(info)
