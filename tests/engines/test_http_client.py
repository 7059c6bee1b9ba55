"""The client against a fake engine, and against servers that break every rule."""

from __future__ import annotations

import gzip
import json
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise

import pytest

from engines.answers import GenerationRequest
from engines.errors import (
    BadRequest,
    EngineCrashed,
    EngineError,
    EngineProtocolError,
    EngineTimeout,
)
from engines.http_client import EngineClient

from .conftest import Launch
from .fakes.rule import greedy
from .raw_server import event, http, raw_server, sse

REQUEST = GenerationRequest("r1", (5, 6, 7), 10)


@pytest.mark.parametrize("behaviour", ["healthy", "incremental"])
def test_stream_and_generate_agree_with_the_rule(launch_fake: Launch, behaviour: str) -> None:
    client = launch_fake(behaviour).client()
    expected = greedy([5, 6, 7], 10)
    whole = client.generate(REQUEST)
    assert whole.output_ids == expected and whole.arrivals == ()
    assert (whole.finish_reason, whole.verify_steps) == ("length", 10)
    seen: list[tuple[float, int]] = []
    for on_event in (None, lambda now, count: seen.append((now, count))):
        before = time.monotonic()
        streamed = client.stream(REQUEST, on_event)
        assert streamed.output_ids == expected
        assert [count for _, count in streamed.arrivals] == [3, 6, 9, 10]
        times = [streamed.sent_s, *(now for now, _ in streamed.arrivals)]
        assert before <= times[0] and times == sorted(times) and times[-1] <= time.monotonic()
    assert tuple(seen) == streamed.arrivals


def test_stop_token(launch_fake: Launch) -> None:
    expected = greedy([5, 6, 7], 10)
    request = GenerationRequest("r", (5, 6, 7), 10, stop_token_ids=(expected[4],))
    answer = launch_fake().client().stream(request)
    assert answer.output_ids == expected[: expected.index(expected[4]) + 1]
    assert answer.finish_reason == "stop"


def test_arrivals_are_the_clients_clock(launch_fake: Launch) -> None:
    """Events that the server sends 0.05 s apart arrive at least that far apart."""
    times = [t for t, _ in launch_fake(pause_s=0.05).client().stream(REQUEST).arrivals]
    assert all(b - a > 0.03 for a, b in pairwise(times))


def test_stream_in_a_thread_survives_pauses(launch_fake: Launch) -> None:
    engine = launch_fake(pause_s=0.02)
    answers = []
    client = engine.client()
    thread = threading.Thread(target=lambda: answers.append(client.stream(REQUEST)))
    thread.start()
    for _ in range(4):
        engine.pause()
        time.sleep(0.03)
        engine.resume()
        time.sleep(0.01)
    thread.join(10)
    assert answers[0].output_ids == greedy([5, 6, 7], 10)


def test_errors_are_typed(launch_fake: Launch) -> None:
    client = launch_fake().client()
    with pytest.raises(BadRequest, match="id out of range"):
        client.generate(GenerationRequest("r", (99,), 4))
    with pytest.raises(BadRequest, match="id out of range"):
        client.stream(GenerationRequest("r", (99,), 4))
    client.flush_cache()
    with pytest.raises(EngineProtocolError, match="not JSON"):
        launch_fake("garbage").client().generate(REQUEST)
    with pytest.raises(EngineProtocolError, match=r"server-sent|inside an event"):
        launch_fake("garbage").client().stream(REQUEST)
    dies = launch_fake("dies")
    with pytest.raises(EngineCrashed):
        dies.client().generate(REQUEST)
    with pytest.raises(EngineCrashed):
        dies.client().stream(REQUEST)
    assert not dies.client().health()
    slow = launch_fake("slow")
    with EngineClient(slow.url, 0.3) as hasty, pytest.raises(EngineTimeout, match=r"0\.3 s"):
        hasty.stream(REQUEST)


DONE = b"data: [DONE]\n\n"
END = {"type": "length"}
WRONG = EngineProtocolError


@pytest.mark.parametrize(
    ("body", "error", "message"),
    [
        (sse(event([1, 2], 2, END)), WRONG, r"without \[DONE\]"),
        (sse(event([1, 2], 2)) + DONE, WRONG, "without a finish_reason"),
        (sse(event([1, 2], 3, END)) + DONE, WRONG, "2 ids after 0"),
        (sse(event([1, 2], None, END)) + DONE, WRONG, "completion_tokens is missing"),
        (sse(event([1], 1), event([2, 3], 2, END)) + DONE, WRONG, "changed tokens"),
        (sse(event([1, 2], 2), event([3], 3), event([1] * 4, 4)) + DONE, WRONG, "mixes"),
        (sse(event([1, -2], 2, END)) + DONE, WRONG, "not a token id: -2"),
        (sse(event([True], 1, END)) + DONE, WRONG, "not a token id"),
        (sse(event(["a"], 1, END)) + DONE, WRONG, "not a token id"),
        (sse(event([2**40], 1, END)) + DONE, WRONG, "not a token id"),
        (sse(event({}, 1, END)) + DONE, WRONG, "output_ids is missing or not a list"),
        (sse(event(list(range(11)), 11, END)) + DONE, WRONG, "max_new_tokens 10"),
        (sse(event([1], 1, "because")) + DONE, WRONG, "finish_reason is 'because'"),
        (sse(event([1], 1, END, spec_verify_ct=-1)) + DONE, WRONG, "spec_verify_ct"),
        (sse(event([1], 1, END)) + DONE + sse(event([1], 1, END)), WRONG, r"after \[DONE\]"),
        (b"data: {nope\n\n" + DONE, WRONG, "not JSON"),
        (b"data: " + b"[" * 10_000 + b"\n\n" + DONE, WRONG, "not JSON"),
        (b"data: [1]\n\n" + DONE, WRONG, "not an object"),
        (sse({"error": {"message": "no", "code": 400}}) + DONE, BadRequest, "no"),
        (sse({"error": {"message": "no", "code": 500}}) + DONE, WRONG, "reported an error: no"),
        (
            sse(event([], 0, {"type": "abort", "message": "too long", "status_code": 400})) + DONE,
            BadRequest,
            "too long",
        ),
    ],
)
@pytest.mark.parametrize("live", [False, True])
def test_malformed_streams(body: bytes, error: type[EngineError], message: str, live: bool) -> None:
    on_event = (lambda now, count: None) if live else None
    with (
        raw_server(lambda c: c.sendall(http(body))) as url,
        EngineClient(url, 5) as client,
        pytest.raises(error, match=message),
    ):
        client.stream(REQUEST, on_event)


def test_events_split_and_joined_anywhere() -> None:
    body = (sse(event([1], 1), event([1, 2], 2), event([1, 2, 3], 3, END)) + DONE).replace(
        b"\n", b"\r\n"
    )

    def dribble(connection: socket.socket) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        data = http(body)
        for start in range(0, len(data), 7):
            connection.sendall(data[start : start + 7])

    with raw_server(dribble) as url, EngineClient(url, 5) as client:
        answer = client.stream(REQUEST)
    assert answer.output_ids == (1, 2, 3)
    assert [count for _, count in answer.arrivals] == [1, 2, 3]


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"garbage that is not HTTP\r\n\r\n", EngineProtocolError),
        (b"", EngineCrashed),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\n{", EngineCrashed),
        (b"HTTP/1.1 500 Oops\r\nContent-Length: 4\r\n\r\noops", EngineProtocolError),
        (http(b'{"output_ids": [1], "meta_info": NaN}'), EngineProtocolError),
    ],
)
def test_broken_transport(data: bytes, error: type[EngineError]) -> None:
    with (
        raw_server(lambda c: c.sendall(data)) as url,
        EngineClient(url, 5) as client,
        pytest.raises(error),
    ):
        client.generate(REQUEST)


def test_a_reply_that_never_ends_meets_the_deadline() -> None:
    def drip(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
        try:
            while True:
                connection.sendall(b" ")
                time.sleep(0.01)
        except OSError:
            return

    with raw_server(drip) as url, EngineClient(url, 0.4) as client, pytest.raises(EngineTimeout):
        client.generate(REQUEST)


def forever(block: bytes, pause_s: float = 0.0) -> Callable[[socket.socket], None]:
    """Sends `block` again and again until the client has had enough."""

    def reply(connection: socket.socket) -> None:
        connection.settimeout(5)
        with suppress(OSError):
            while True:
                connection.sendall(block)
                time.sleep(pause_s)

    return reply


STREAM_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"


@pytest.mark.parametrize(
    ("head", "block", "pause_s", "error"),
    [
        # Comments, empty answers, half a header, interim replies: none of them for ever.
        (STREAM_HEAD, b": ping\n\n", 0.01, EngineTimeout),
        (STREAM_HEAD, sse(event([], 0)), 0.01, EngineTimeout),
        (STREAM_HEAD, b"d", 0.01, EngineTimeout),
        (b"HTTP/1.1 200 OK\r\nX: ", b"a", 0.01, EngineTimeout),
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n", 0.01, EngineTimeout),
        # However fast they come.
        (STREAM_HEAD, b": ping\n\n" * 1000, 0.0, EngineProtocolError),
        (STREAM_HEAD, sse(event([], 0)) * 1000, 0.0, EngineProtocolError),
        (STREAM_HEAD, b"data: " + b"x" * 60_000, 0.0, EngineProtocolError),
        (b"HTTP/1.1 200 OK\r\nX: ", b"a" * 60_000, 0.0, EngineProtocolError),
    ],
)
def test_a_stream_without_end_is_bounded_in_time_and_size(
    head: bytes, block: bytes, pause_s: float, error: type[EngineError]
) -> None:
    def reply(connection: socket.socket) -> None:
        connection.sendall(head)
        forever(block, pause_s)(connection)

    timeout_s = 0.5 if error is EngineTimeout else 20.0
    with raw_server(reply) as url, EngineClient(url, timeout_s) as client:
        began = time.monotonic()
        with pytest.raises(error):
            client.stream(REQUEST)
        assert time.monotonic() - began < 15.0


@pytest.mark.parametrize(
    ("data", "error", "message"),
    [
        (b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\n\r\n", WRONG, "status 302"),
        (b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n<html>", WRONG, "not JSON"),
        (
            b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n\xff\xfe{\x00}\x00\xd8\x00\x00",
            WRONG,
            "not JSON",
        ),
        (http(b'{"output_ids": ' + b"[" * 5000), WRONG, "not JSON"),
        (http(b'{"a": ' + b"9" * 6000 + b"}"), WRONG, "not JSON"),
        (http(b'{"a": "' + b"x" * 100_000 + b'"}'), WRONG, "longer than 17024 bytes"),
        (b"HTTP/1.1 500 Oops\r\n\r\n" + b"x" * 200_000, WRONG, "longer than 65536 bytes"),
        (
            b"HTTP/1.1 418 Teapot\r\nContent-Length: 9\r\n\r\n\x1b[31mred\n",
            BadRequest,
            r"418:  \[31mred",
        ),
        (http(b'{"error": {"message": "\\ud800\\u001b[2J"}}'), WRONG, r"error:   \[2J$"),
    ],
)
def test_whatever_comes_back_is_a_typed_error(
    data: bytes, error: type[EngineError], message: str
) -> None:
    def reply(connection: socket.socket) -> None:
        with suppress(OSError):
            connection.sendall(data)

    with (
        raw_server(reply) as url,
        EngineClient(url, 5) as client,
        pytest.raises(error, match=message) as raised,
    ):
        client.generate(REQUEST)
    str(raised.value).encode()  # no lone surrogate reaches a log
    assert "\x1b" not in str(raised.value)


ABORT = {"finish_reason": {"type": "abort", "message": "full", "status_code": 503}}


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"HTTP/1.1 503 Busy\r\nContent-Length: 2\r\n\r\n{}", 503),
        (b"HTTP/1.1 429 Slower\r\nContent-Length: 2\r\n\r\n{}", 429),
        (http(json.dumps({"error": {"message": "full", "code": 503}}).encode()), 503),
        (http(json.dumps({"output_ids": [], "meta_info": ABORT}).encode()), 503),
        (http(b'{"error": "503"}'), None),
        (http(b"503"), None),
    ],
)
def test_a_refusal_carries_its_status(data: bytes, status: int | None) -> None:
    with (
        raw_server(lambda c: c.sendall(data)) as url,
        EngineClient(url, 5) as client,
        pytest.raises(EngineError) as raised,
    ):
        client.generate(REQUEST)
    assert raised.value.status == status


def test_a_compressed_reply_is_not_unpacked() -> None:
    """A few kilobytes could unfold to gigabytes."""
    packed = gzip.compress(b" " * 10_000_000)
    head = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(packed)
    with (
        raw_server(lambda c: c.sendall(head + packed)) as url,
        EngineClient(url, 5) as client,
        pytest.raises(EngineProtocolError, match="not JSON"),
    ):
        client.generate(REQUEST)


@pytest.mark.parametrize(
    ("meta", "message"),
    [
        ({"prompt_tokens": 2}, "prompt_tokens 2, sent were 3"),
        ({"prompt_tokens": "3"}, "prompt_tokens '3'"),
        ({"step_rows": "x"}, "step_rows is missing or not a list"),
        ({"step_rows": [1, None]}, "step_rows is missing or not a count"),
        ({"step_rows": [1e400]}, "step_rows is missing or not a count"),
    ],
)
def test_what_an_engine_says_of_its_answer_must_agree(
    meta: dict[str, object], message: str
) -> None:
    body = sse(event([1], 1, END, **meta)).replace(b"Infinity", b"1e400") + DONE
    with (
        raw_server(lambda c: c.sendall(http(body))) as url,
        EngineClient(url, 5) as client,
        pytest.raises(EngineProtocolError, match=message),
    ):
        client.stream(REQUEST)


def test_a_cut_answer_is_the_beginning_of_the_whole_one(launch_fake: Launch) -> None:
    client = launch_fake(pause_s=0.02).client()
    cut = client.stream(REQUEST, cut=4)
    assert cut.output_ids == greedy([5, 6, 7], 10)[:6]
    assert [count for _, count in cut.arrivals] == [3, 6]
    assert cut.finish_reason == "cut"
    # The connection is gone with it, the engine is not.
    assert client.stream(REQUEST).output_ids == greedy([5, 6, 7], 10)
    assert client.stream(REQUEST, cut=99).finish_reason == "length"


def test_no_connection_is_kept_for_the_next_request() -> None:
    """A server that is stopped and continued drops idle ones at the very moment it is asked."""
    seen: list[int] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            for _ in range(3):
                connection, address = server.accept()
                seen.append(address[1])
                with connection:
                    connection.recv(65536)
                    connection.sendall(http(b"{}"))
                    connection.recv(1)

        thread = threading.Thread(target=serve)
        thread.start()
        with EngineClient(f"http://127.0.0.1:{server.getsockname()[1]}", 5) as client:
            for _ in range(3):
                assert client.server_info() == {}
        thread.join(5)
    assert len(set(seen)) == 3
