"""Talks to an engine over SGLang's HTTP surface, on the client's own clock.

All times are `time.monotonic()` of this process. A reply is bounded in time (`timeout_s` a
request, seconds a paused engine spends stopped included) and in size.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any

import httpx

from engines.answer_parsing import (
    StreamAssembler,
    finished_answer,
    generate_payload,
    raise_error_event,
)
from engines.answers import Answer, GenerationRequest
from engines.errors import BadRequest, EngineCrashed, EngineProtocolError, EngineTimeout
from engines.json_fields import parse_object, table, token_ids

MAX_REPLY_BYTES = 512 * 1024 * 1024
OnEvent = Callable[[float, int], None]


class EngineClient:
    """A client of one engine; may be used from several threads at once.

    Args:
        base_url: `http://host:port`.
        timeout_s: deadline of one request, from sending to the last byte.
    """

    def __init__(self, base_url: str, timeout_s: float = 120.0) -> None:
        self.base_url = base_url
        self.timeout_s = timeout_s
        # No proxy or netrc of the user's may stand between the clock and the engine.
        self._http = httpx.Client(base_url=base_url, timeout=timeout_s, trust_env=False)

    def health(self) -> bool:
        """Whether /health answers 200; a connection refused or a 503 is False."""
        try:
            with self._http.stream("GET", "/health") as response:
                return response.status_code == 200
        except httpx.HTTPError:
            return False

    def server_info(self) -> dict[str, Any]:
        """/server_info: tree hash, arm, effective configuration."""
        return parse_object(self._read("GET", "/server_info", None), "/server_info")

    def flush_cache(self, busy_s: float = 5.0) -> None:
        """Empty prefix and draft caches; retries for `busy_s` seconds while requests run (400)."""
        deadline = time.monotonic() + busy_s
        while True:
            try:
                self._read("POST", "/flush_cache", {})
            except BadRequest:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)
            else:
                return

    def generate(self, request: GenerationRequest) -> Answer:
        """One answer in one piece (`arrivals` empty).

        Raises:
            BadRequest, EngineTimeout, EngineCrashed, EngineProtocolError
        """
        sent_s = time.monotonic()
        data = self.post("/generate", generate_payload(request, stream=False))
        what = f"/generate {request.id}"
        ids = token_ids(data, "output_ids", what)
        return finished_answer(request, ids, table(data, "meta_info", what), sent_s, ())

    def stream(self, request: GenerationRequest, on_event: OnEvent | None = None) -> Answer:
        """One answer with the arrival time of every server-sent event.

        Events are stamped as they are read and parsed after the last one, so that parsing costs
        no time between tokens; with `on_event(seconds, tokens so far)` they are parsed at once.
        """
        assembler = StreamAssembler(request)
        events: list[tuple[float, bytes]] = []
        arrivals: list[tuple[float, int]] = []
        finished = False
        content = json.dumps(generate_payload(request, stream=True)).encode()
        sent_s = time.monotonic()
        with self._open("POST", "/generate", content) as response:
            for now, event in _events(self._chunks(response, sent_s + self.timeout_s)):
                if finished:
                    raise EngineProtocolError(f"/generate {request.id}: an event after [DONE]")
                if event == b"[DONE]":
                    finished = True
                elif on_event is None:
                    events.append((now, event))
                else:
                    arrivals.append((now, assembler.add(event)))
                    on_event(*arrivals[-1])
        arrivals += [(now, assembler.add(event)) for now, event in events]
        if not finished:
            raise EngineProtocolError(f"/generate {request.id}: stream ended without [DONE]")
        return finished_answer(request, assembler.ids, assembler.meta, sent_s, tuple(arrivals))

    def post(self, path: str, payload: dict[str, Any]) -> dict[str, Any]:
        """POST JSON, get a JSON object back."""
        data = parse_object(self._read("POST", path, payload), path)
        raise_error_event(data)
        return data

    def close(self) -> None:
        self._http.close()

    def __enter__(self) -> EngineClient:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _read(self, method: str, path: str, payload: dict[str, Any] | None) -> bytes:
        content = None if payload is None else json.dumps(payload).encode()
        deadline = time.monotonic() + self.timeout_s
        with self._open(method, path, content) as response:
            return b"".join(chunk for _, chunk in self._chunks(response, deadline))

    @contextmanager
    def _open(self, method: str, path: str, content: bytes | None) -> Iterator[httpx.Response]:
        headers = {"Content-Type": "application/json"}
        try:
            with self._http.stream(method, path, content=content, headers=headers) as response:
                if response.status_code != 200:
                    self._refuse(path, response)
                yield response
        except httpx.TimeoutException as error:
            raise EngineTimeout(f"{path} did not answer within {self.timeout_s:g} s") from error
        except httpx.RemoteProtocolError as error:
            text = str(error)
            if "disconnected" in text or "peer closed" in text:
                raise EngineCrashed(f"{path}: the engine closed the connection: {text}") from error
            raise EngineProtocolError(f"{path}: not HTTP: {text}") from error
        except (httpx.NetworkError, httpx.StreamError) as error:
            raise EngineCrashed(f"{path}: connection lost: {error!r}") from error
        except httpx.HTTPError as error:
            raise EngineProtocolError(f"{path}: {error!r}") from error
        except httpx.InvalidURL as error:
            raise EngineProtocolError(f"{path}: {error}") from error

    def _refuse(self, path: str, response: httpx.Response) -> None:
        deadline = time.monotonic() + self.timeout_s
        body = b"".join(chunk for _, chunk in self._chunks(response, deadline))
        text = body[:1000].decode("utf-8", "replace")
        if 400 <= response.status_code < 500:
            raise BadRequest(f"{path}: {response.status_code}: {text}")
        raise EngineProtocolError(f"{path}: HTTP status {response.status_code}: {text}")

    def _chunks(self, response: httpx.Response, deadline: float) -> Iterator[tuple[float, bytes]]:
        size = 0
        for chunk in response.iter_raw():
            now = time.monotonic()
            size += len(chunk)
            if now > deadline:
                raise EngineTimeout(f"no complete answer within {self.timeout_s:g} s")
            if size > MAX_REPLY_BYTES:
                raise EngineProtocolError(f"the answer is longer than {MAX_REPLY_BYTES} bytes")
            yield now, chunk


def _events(chunks: Iterator[tuple[float, bytes]]) -> Iterator[tuple[float, bytes]]:
    """(arrival of its last byte, data) of each server-sent event."""
    rest = b""
    for now, chunk in chunks:
        rest += chunk
        if b"\r" in rest:
            rest = rest.replace(b"\r\n", b"\n")
        *complete, rest = rest.split(b"\n\n")
        for block in complete:
            data = [line[5:].strip() for line in block.split(b"\n") if line.startswith(b"data:")]
            if data:
                yield now, b"\n".join(data)
            elif block.strip() and not block.startswith(b":"):
                raise EngineProtocolError(f"not a server-sent event: {block[:120]!r}")
    if rest.strip():
        raise EngineProtocolError(f"the stream ended inside an event: {rest[:120]!r}")
