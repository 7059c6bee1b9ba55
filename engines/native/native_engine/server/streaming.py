"""Server-sent events of one call: how it ends, whatever happened while it was answered."""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator
from typing import Any

from fastapi.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from native_engine.errors import NativeEngineError, QueueFull
from native_engine.server.calls import Call

_HEADERS = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
_log = logging.getLogger(__name__)


class EventStream(StreamingResponse):
    """The answer to `call` as `events`, then `[DONE]`. An exception on the way becomes an error
    event; a client that goes away, at whatever moment, frees the engine for the next request."""

    def __init__(self, call: Call, events: AsyncIterator[bytes]) -> None:
        super().__init__(_ended(events), media_type="text/event-stream", headers=_HEADERS)
        self._call = call

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # Not in the generator: one that never began to run runs no `finally` either.
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._call.cancel()


async def _ended(events: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    try:
        async for event in events:
            yield event
    # Headers are sent: without an event the client could not tell a fault from a lost connection.
    except Exception as error:
        if not isinstance(error, NativeEngineError):
            _log.exception("a stream ended in an unexpected error")
        yield sse(abort_body(error))
    yield b"data: [DONE]\n\n"


def sse(body: Any) -> bytes:
    return f"data: {json.dumps(body, ensure_ascii=False, separators=(',', ':'))}\n\n".encode()


def abort_body(error: Exception) -> dict[str, Any]:
    """A request the engine gave up, in SGLang's shape and OpenAI's: no tokens to trust, finish
    reason abort."""
    status = 503 if isinstance(error, QueueFull) else 500
    kind = type(error).__name__
    text = str(error) if isinstance(error, NativeEngineError) else f"{kind}: {error}"
    message = text.encode("utf-8", "backslashreplace").decode()
    reason = {"type": "abort", "message": message, "status_code": status}
    return {
        "error": {"message": message, "type": kind, "param": None, "code": status},
        "text": "",
        "output_ids": [],
        "meta_info": {"finish_reason": reason},
    }
