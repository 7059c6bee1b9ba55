"""What the bench needs of an engine: a client that streams, and to be stopped and continued."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from engines.answers import Answer, GenerationRequest


class StreamingClient(Protocol):
    """Talks to one engine; arrivals are stamped on the client's monotonic clock, in seconds. With
    `cut` the client hangs up once that many tokens have come."""

    def stream(
        self,
        request: GenerationRequest,
        on_event: Callable[..., Any] | None = None,
        cut: int | None = None,
    ) -> Answer: ...

    def flush_cache(self) -> Any: ...


class PausableEngine(Protocol):
    """A resident engine process group (`engines.launcher.EngineProcess`)."""

    @property
    def arm(self) -> str: ...

    @property
    def tree_hash(self) -> str: ...

    def client(self) -> StreamingClient: ...

    def pause(self) -> None: ...

    def resume(self) -> None: ...

    def stop(self) -> None: ...
