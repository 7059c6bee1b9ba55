"""Talks to an engine over SGLang's HTTP surface, on the client's own clock.

All times are `time.monotonic()` of this process. A reply is bounded in time (`timeout_s` a request
from connecting to the last byte, seconds a paused engine spends stopped included) and in size: a
few times what an honest answer to that very request can take. Nothing an engine sends is followed,
unpacked or waited for beyond that.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any

import httpcore

from engines.answer_parsing import (
    StreamAssembler,
    cut_answer,
    finished_answer,
    generate_payload,
    raise_error_event,
    refusal,
)
from engines.answers import Answer, GenerationRequest
from engines.deadline_network import Deadline, DeadlineNetwork
from engines.errors import BadRequest, EngineCrashed, EngineProtocolError, EngineTimeout
from engines.json_fields import parse_object, printable, table, token_ids

KIB = 1024
# Of a forcing reply (stock's): every position of a long context with its best tokens.
MAX_REPLY_BYTES = 512 * KIB * KIB
MAX_ADMIN_BYTES = 1024 * KIB
MAX_ERROR_BYTES = 64 * KIB
_HEADERS = [("Content-Type", "application/json"), ("Accept-Encoding", "identity")]
OnEvent = Callable[[float, int], None]


def most_event_bytes(request: GenerationRequest) -> int:
    """No event of an answer is longer: all ids and text so far, and the answer's meta_info."""
    return 16 * KIB + 64 * request.max_new_tokens


def most_stream_bytes(request: GenerationRequest) -> int:
    """No stream is longer: an event a token, each with all tokens so far, and some to spare."""
    return min((request.max_new_tokens + 16) * most_event_bytes(request), MAX_REPLY_BYTES)


class EngineClient:
    """A client of one engine; may be used from several threads at once.

    Args:
        base_url: `http://host:port`.
        timeout_s: deadline of one request, from connecting to the last byte.
    """

    def __init__(self, base_url: str, timeout_s: float = 120.0) -> None:
        self.base_url = base_url
        self.timeout_s = timeout_s
        self._deadline = Deadline()
        self._http = httpcore.ConnectionPool(
            network_backend=DeadlineNetwork(self._deadline),
            max_connections=None,
            # A server may drop an idle connection just as it is continued and asked again.
            max_keepalive_connections=0,
        )

    def health(self) -> bool:
        """Whether /health answers 200; a connection refused or a 503 is False."""
        try:
            with (
                self._deadline.within(self.timeout_s),
                self._http.stream("GET", self.base_url + "/health", headers=_HEADERS) as response,
            ):
                return response.status == 200
        except (httpcore.TimeoutException, httpcore.NetworkError, httpcore.ProtocolError):
            return False

    def server_info(self) -> dict[str, Any]:
        """/server_info: tree hash, arm, effective configuration."""
        return parse_object(
            self._read("GET", "/server_info", None, MAX_ADMIN_BYTES), "/server_info"
        )

    def flush_cache(self, busy_s: float = 30.0) -> None:
        """Empty prefix and draft caches; retries for `busy_s` seconds while requests run (400)."""
        deadline = time.monotonic() + busy_s
        while True:
            try:
                self._read("POST", "/flush_cache", {}, MAX_ADMIN_BYTES)
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
        payload = generate_payload(request, stream=False)
        data = parse_object(
            self._read("POST", "/generate", payload, most_event_bytes(request)), "/generate"
        )
        raise_error_event(data)
        what = f"/generate {request.id}"
        ids = token_ids(data, "output_ids", what)
        return finished_answer(request, ids, table(data, "meta_info", what), sent_s, ())

    def stream(
        self,
        request: GenerationRequest,
        on_event: OnEvent | None = None,
        cut: int | None = None,
    ) -> Answer:
        """One answer with the arrival time of every server-sent event.

        Events are stamped as they are read and parsed after the last one, so that parsing costs
        no time between tokens; with `on_event(seconds, tokens so far)` they are parsed at once.
        With `cut` the client hangs up once that many tokens have come (finish reason `cut`): until
        then an engine cannot tell such a request from any other.
        """
        assembler = StreamAssembler(request)
        events: list[tuple[float, bytes]] = []
        arrivals: list[tuple[float, int]] = []
        finished = False
        content = json.dumps(generate_payload(request, stream=True)).encode()
        sent_s = time.monotonic()
        with self._open("POST", "/generate", content) as response:
            chunks = self._chunks(response, most_stream_bytes(request))
            for now, event in _events(chunks, most_event_bytes(request)):
                if finished:
                    raise EngineProtocolError(f"/generate {request.id}: an event after [DONE]")
                if event == b"[DONE]":
                    finished = True
                elif on_event is None and cut is None:
                    events.append((now, event))
                else:
                    arrivals.append((now, assembler.add(event)))
                    if on_event is not None:
                        on_event(*arrivals[-1])
                    if cut is not None and arrivals[-1][1] >= cut:
                        return cut_answer(request, assembler.ids, sent_s, tuple(arrivals))
        arrivals += [(now, assembler.add(event)) for now, event in events]
        if not finished:
            raise EngineProtocolError(f"/generate {request.id}: stream ended without [DONE]")
        return finished_answer(request, assembler.ids, assembler.meta, sent_s, tuple(arrivals))

    def post(self, path: str, payload: dict[str, Any]) -> dict[str, Any]:
        """POST JSON, get a JSON object back."""
        data = parse_object(self._read("POST", path, payload, MAX_REPLY_BYTES), path)
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

    def _read(self, method: str, path: str, payload: dict[str, Any] | None, limit: int) -> bytes:
        content = None if payload is None else json.dumps(payload).encode()
        with self._open(method, path, content) as response:
            return b"".join(chunk for _, chunk in self._chunks(response, limit))

    @contextmanager
    def _open(self, method: str, path: str, content: bytes | None) -> Iterator[httpcore.Response]:
        url = self.base_url + path
        try:
            with (
                self._deadline.within(self.timeout_s),
                self._http.stream(method, url, headers=_HEADERS, content=content) as response,
            ):
                if response.status != 200:
                    self._refuse(path, response)
                yield response
        except httpcore.TimeoutException as error:
            raise EngineTimeout(f"{path} did not answer within {self.timeout_s:g} s") from error
        except httpcore.RemoteProtocolError as error:
            text = printable(error)
            if "disconnected" in text or "peer closed" in text:
                raise EngineCrashed(f"{path}: the engine closed the connection: {text}") from error
            raise EngineProtocolError(f"{path}: not HTTP: {text}") from error
        except httpcore.NetworkError as error:
            raise EngineCrashed(f"{path}: connection lost: {printable(error)}") from error
        except (httpcore.ProtocolError, httpcore.UnsupportedProtocol) as error:
            raise EngineProtocolError(f"{path}: {printable(error)}") from error

    def _refuse(self, path: str, response: httpcore.Response) -> None:
        body = b"".join(chunk for _, chunk in self._chunks(response, MAX_ERROR_BYTES))
        text = printable(body.decode("utf-8", "replace"), 1000)
        raise refusal(response.status, f"{path}: HTTP status {response.status}: {text}")

    def _chunks(self, response: httpcore.Response, limit: int) -> Iterator[tuple[float, bytes]]:
        size = 0
        for chunk in response.iter_stream():
            now = time.monotonic()
            size += len(chunk)
            if size > limit:
                raise EngineProtocolError(f"the reply is longer than {limit} bytes")
            yield now, chunk


def _events(chunks: Iterator[tuple[float, bytes]], limit: int) -> Iterator[tuple[float, bytes]]:
    """(arrival of its last byte, data) of each server-sent event, none longer than `limit`."""
    rest = b""
    for now, chunk in chunks:
        rest += chunk
        if b"\r" in rest:
            rest = rest.replace(b"\r\n", b"\n")
        *complete, rest = rest.split(b"\n\n")
        if max(map(len, (*complete, rest))) > limit:
            raise EngineProtocolError(f"an event is longer than {limit} bytes")
        for block in complete:
            data = [line[5:].strip() for line in block.split(b"\n") if line.startswith(b"data:")]
            if data:
                yield now, b"\n".join(data)
            elif block.strip() and not block.startswith(b":"):
                raise EngineProtocolError(f"not a server-sent event: {block[:120]!r}")
    if rest.strip():
        raise EngineProtocolError(f"the stream ended inside an event: {rest[:120]!r}")
