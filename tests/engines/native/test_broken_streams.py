"""Streams that do not end well: a fault in the engine or in the reply, a client that goes away."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast
from urllib.parse import urlsplit

import httpx
import openai
import pytest

from native_engine.server.calls import Call
from native_engine.server.state import ServerState
from native_engine.server.streaming import EventStream
from tests.engines.native.serving import serve
from tests.engines.native.tiny import add_tokenizer, make_folder

PROMPT = [40, 70, 33, 52, 61, 40, 70, 33]
MESSAGES: Any = [{"role": "user", "content": "Hi there"}]
TOKENS = 1000


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, ServerState]]:
    folder = tmp_path_factory.mktemp("tiny")
    make_folder(folder)
    add_tokenizer(folder)
    with serve(folder, speculation=False, tokens=TOKENS) as found:
        yield found


def generate_body(count: int, stream: bool) -> dict[str, Any]:
    params = {"max_new_tokens": count, "temperature": 0, "ignore_eos": True}
    return {"input_ids": PROMPT, "sampling_params": params, "stream": stream}


@contextmanager
def each_step(state: ServerState, action: Callable[[int], None]) -> Iterator[list[int]]:
    """`action(number of the step)` before each of the engine's forward passes."""
    model = state.scheduler.engine.model
    forward, steps = model.forward, [0]

    def watched(*args: Any) -> Any:
        steps[0] += 1
        action(steps[0])
        return forward(*args)

    model.forward = watched  # type: ignore[method-assign]
    try:
        yield steps
    finally:
        model.forward = forward  # type: ignore[method-assign]


def fault_at(number: int) -> Callable[[int], None]:
    def action(step: int) -> None:
        if step == number:
            raise RuntimeError("planted fault \udcff")

    return action


def slowly(step: int) -> None:
    time.sleep(0.02)


def wait_until_idle(state: ServerState) -> None:
    deadline = time.monotonic() + 30
    while state.scheduler.load != (0, 0):
        assert time.monotonic() < deadline, "the engine is still busy"
        time.sleep(0.005)


def still_serves(url: str) -> None:
    reply = httpx.post(f"{url}/generate", json=generate_body(8, stream=False))
    assert reply.status_code == 200
    assert len(reply.json()["output_ids"]) == 8


def test_a_fault_in_mid_stream_is_its_last_event(served: tuple[str, ServerState]) -> None:
    url, state = served
    with (
        each_step(state, fault_at(6)),
        httpx.stream("POST", f"{url}/generate", json=generate_body(50, stream=True)) as reply,
    ):
        lines = [line for line in reply.iter_lines() if line]
    assert lines[-1] == "data: [DONE]"
    *good, last = [json.loads(line[6:]) for line in lines[:-1]]
    assert [len(event["output_ids"]) for event in good] == [1, 2, 3, 4, 5]
    assert "RuntimeError: planted fault" in last["error"]["message"]
    assert last["error"]["code"] == 500
    assert last["meta_info"]["finish_reason"]["type"] == "abort"
    assert last["output_ids"] == []
    still_serves(url)


def test_a_fault_without_a_stream_is_a_500_that_says_what(
    served: tuple[str, ServerState],
) -> None:
    url, state = served
    for path, body in (
        ("/generate", generate_body(50, stream=False)),
        ("/v1/completions", {"prompt": PROMPT, "max_tokens": 50, "ignore_eos": True}),
    ):
        with each_step(state, fault_at(6)):
            reply = httpx.post(url + path, json=body)
        assert reply.status_code == 500
        assert "planted fault" in reply.json()["error"]["message"]
        still_serves(url)


def test_openais_client_sees_a_fault_in_mid_stream(served: tuple[str, ServerState]) -> None:
    url, state = served
    with (
        openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client,
        each_step(state, fault_at(6)),
        client.chat.completions.create(
            model="tiny", messages=MESSAGES, stream=True, extra_body={"ignore_eos": True}
        ) as chunks,
        pytest.raises(openai.APIError, match="planted fault"),
    ):
        for _ in chunks:
            pass
    still_serves(url)


@pytest.mark.parametrize("path", ["/generate", "/v1/completions"])
def test_a_fault_while_an_event_is_made_frees_the_engine(
    served: tuple[str, ServerState], path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, state = served
    body = generate_body(900, stream=True)
    if path != "/generate":
        body = {"prompt": PROMPT, "max_tokens": 900, "ignore_eos": True, "stream": True}

    def broken(ids: Any) -> str:
        raise ValueError("planted fault")

    with each_step(state, slowly) as steps:
        with monkeypatch.context() as patch:
            patch.setattr(state.tokenizer, "decode", broken)
            lines = [line for line in httpx.post(url + path, json=body).text.split("\n") if line]
        assert lines[-1] == "data: [DONE]"
        error = json.loads(lines[-2][6:])["error"]
        assert error["type"] == "ValueError"
        assert "planted fault" in error["message"]
        wait_until_idle(state)
        assert steps[0] < 450
    still_serves(url)


@pytest.mark.parametrize("path", ["/generate", "/v1/completions"])
@pytest.mark.parametrize("events_read", [0, 2])
def test_a_client_that_goes_away_frees_the_engine(
    served: tuple[str, ServerState], path: str, events_read: int
) -> None:
    url, state = served
    body = generate_body(900, stream=True)
    if path != "/generate":
        body = {"prompt": PROMPT, "max_tokens": 900, "ignore_eos": True, "stream": True}
    content = json.dumps(body).encode()
    address = urlsplit(url)
    assert address.hostname and address.port
    with each_step(state, slowly) as steps:
        with socket.create_connection((address.hostname, address.port), timeout=30) as client:
            head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(content)}\r\n\r\n"
            client.sendall(head.encode() + content)
            received = b""
            while received.count(b"data: ") < events_read:
                received += client.recv(4096)
        # Queued behind it: nobody waits for an answer that nobody reads.
        still_serves(url)
        assert steps[0] < 450


class _Watched:
    """As much of a call as a response needs."""

    cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


async def _endless() -> AsyncIterator[bytes]:
    while True:
        yield b"data: {}\n\n"


def test_a_client_gone_before_the_first_byte_frees_the_engine() -> None:
    call = _Watched()

    async def receive() -> Any:
        await asyncio.Event().wait()

    async def send(message: Any) -> None:
        raise OSError("connection lost")

    async def run() -> None:
        response = EventStream(cast(Call, call), _endless())
        with contextlib.suppress(Exception):
            await response({"type": "http", "asgi": {"spec_version": "2.4"}}, receive, send)

    asyncio.run(run())
    assert call.cancelled
