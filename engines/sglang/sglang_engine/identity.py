"""Adds facts about the launch to SGLang's `/server_info`: whose tree, and which arm."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]
PATHS = frozenset({"/server_info", "/get_server_info"})


class IdentityMiddleware:
    """ASGI middleware: a JSON object answered on `PATHS` gets `facts` as further keys."""

    def __init__(self, app: App, facts: Mapping[str, Any]) -> None:
        self._app = app
        self._facts = dict(facts)

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] not in PATHS:
            await self._app(scope, receive, send)
            return
        start: Message = {}
        body = b""

        async def collect(message: Message) -> None:
            nonlocal start, body
            if message["type"] == "http.response.start":
                start = message
                return
            body += message.get("body", b"")
            if message.get("more_body"):
                return
            if start["status"] == 200:
                body = json.dumps({**json.loads(body), **self._facts}).encode()
            headers = [pair for pair in start["headers"] if pair[0].lower() != b"content-length"]
            headers.append((b"content-length", str(len(body)).encode()))
            await send({**start, "headers": headers})
            await send({"type": "http.response.body", "body": body})

        await self._app(scope, receive, collect)
