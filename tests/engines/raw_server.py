"""A server of one reply in raw bytes, and the bytes of replies."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def raw_server(reply: Callable[[socket.socket], None]) -> Iterator[str]:
    """Answers one connection with raw bytes."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                request = b""
                while b"max_new_tokens" not in request or not request.endswith(b"}"):
                    request += connection.recv(65536)
                reply(connection)

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}"
        thread.join()


def http(body: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body


def sse(*events: object) -> bytes:
    return b"".join(b"data: " + json.dumps(e).encode() + b"\n\n" for e in events)


def event(ids: object, total: object, finish: object = None, **meta: object) -> dict[str, object]:
    info = {"completion_tokens": total, "finish_reason": finish, **meta}
    return {"output_ids": ids, "meta_info": info}
