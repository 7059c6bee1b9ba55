"""What the native server does not do, it refuses by name: parameters, long and deep bodies."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import openai
import pytest

from tests.engines.native.serving import serve
from tests.engines.native.tiny import add_tokenizer, make_folder

PROMPT = [40, 70, 33, 52, 61, 40, 70, 33]
MESSAGES: Any = [{"role": "user", "content": "Hi there"}]
PATHS = ("/generate", "/v1/completions", "/v1/chat/completions")


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("tiny")
    make_folder(folder)
    add_tokenizer(folder)
    with serve(folder) as (base, _):
        yield base


def body_of(path: str, **more: Any) -> dict[str, Any]:
    """A small valid body of an endpoint; `more` goes where its parameters go."""
    if path == "/generate":
        return {"input_ids": PROMPT, "sampling_params": {"max_new_tokens": 6, **more}}
    prompt: Any = {"prompt": PROMPT} if path == "/v1/completions" else {"messages": MESSAGES}
    return {**prompt, "max_tokens": 6, **more}


def answer_of(path: str, reply: httpx.Response) -> Any:
    assert reply.status_code == 200, reply.text
    body = reply.json()
    if path == "/generate":
        return body["output_ids"]
    choice = body["choices"][0]
    return choice["text"] if path == "/v1/completions" else choice["message"]["content"]


def refused(reply: httpx.Response, field: str, status: int = 400) -> str:
    """The message of a refusal in OpenAI's error shape that names `field`."""
    assert reply.status_code == status, reply.text
    error = reply.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert (error["param"], error["code"]) == (field, status)
    assert error["message"].startswith(f"{field}: ")
    return str(error["message"])


NEUTRAL = {
    "temperature": 0,
    "top_p": 1,
    "top_k": -1,
    "min_p": 0.0,
    "frequency_penalty": 0,
    "presence_penalty": 0.0,
    "repetition_penalty": 1.0,
    "n": 1,
    "stop": None,
    "json_schema": None,
    "skip_special_tokens": True,
    "no_stop_trim": False,
}


@pytest.mark.parametrize("path", PATHS)
def test_neutral_values_change_nothing(url: str, path: str) -> None:
    plain = answer_of(path, httpx.post(url + path, json=body_of(path)))
    named = answer_of(path, httpx.post(url + path, json=body_of(path, **NEUTRAL)))
    assert named == plain


def test_what_openai_clients_send_with_neutral_values_is_accepted(url: str) -> None:
    more = {
        "model": "whatever",
        "seed": 7,
        "user": "me",
        "logprobs": False,
        "tools": [],
        "tool_choice": "auto",
        "response_format": {"type": "text"},
        "stream_options": {"include_usage": True},
    }
    path = "/v1/chat/completions"
    plain = answer_of(path, httpx.post(url + path, json=body_of(path)))
    assert answer_of(path, httpx.post(url + path, json=body_of(path, **more))) == plain
    # What the client was answered before, sent back as it came.
    history = [{"role": "assistant", "content": "x", "refusal": None, "tool_calls": None}]
    body = body_of(path, messages=[*MESSAGES, *history, *MESSAGES])
    assert httpx.post(url + path, json=body).status_code == 200


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("temperature", 0.7),
        ("temperature", True),
        ("top_p", 0.9),
        ("top_p", True),
        ("top_p", "1"),
        ("top_k", 5),
        ("min_p", 0.1),
        ("frequency_penalty", 0.5),
        ("presence_penalty", -1),
        ("repetition_penalty", 1.1),
        ("n", 2),
        ("logit_bias", {"5": 100}),
        ("skip_special_tokens", False),
        ("skip_special_tokens", 1),
        ("regex", "a+"),
        ("json_schema", "{}"),
    ],
)
@pytest.mark.parametrize("path", PATHS)
def test_other_values_are_refused_by_name(url: str, path: str, name: str, value: Any) -> None:
    reply = httpx.post(url + path, json=body_of(path, **{name: value}))
    message = refused(reply, f"sampling_params.{name}" if path == "/generate" else name)
    if name in ("top_p", "top_k", "frequency_penalty"):
        assert "greedy" in message and "only" in message


def test_not_a_number_is_never_neutral(url: str) -> None:
    text = '{"input_ids": [40], "sampling_params": {"top_p": NaN}}'
    refused(httpx.post(f"{url}/generate", content=text), "sampling_params.top_p")


@pytest.mark.parametrize(
    ("path", "name", "nearest"),
    [
        ("/generate", "max_tokens", "max_new_tokens"),
        ("/generate", "temprature", "temperature"),
        ("/generate", "stop_tokens_ids", "stop_token_ids"),
        ("/v1/completions", "max_token", "max_tokens"),
        ("/v1/completions", "prompts", "prompt"),
        ("/v1/chat/completions", "tempereture", "temperature"),
        ("/v1/chat/completions", "mesages", "messages"),
    ],
)
def test_an_unknown_name_is_refused_with_the_nearest(
    url: str, path: str, name: str, nearest: str
) -> None:
    reply = httpx.post(url + path, json=body_of(path, **{name: 3}))
    field = f"sampling_params.{name}" if path == "/generate" else name
    assert f"did you mean '{nearest}'" in refused(reply, field)


@pytest.mark.parametrize(
    ("path", "change", "field"),
    [
        ("/generate", {"return_logprobs": True}, "return_logprobs"),
        ("/generate", {"max_new_tokens": 4}, "max_new_tokens"),
        ("/generate", {"return_hidden_states": True}, "return_hidden_states"),
        ("/generate", {"rid": "\ud800"}, "rid"),
        ("/v1/chat/completions", {"stream_options": {"usage": True}}, "stream_options.usage"),
        ("/v1/chat/completions", {"tools": [{"type": "function"}]}, "tools"),
        ("/v1/chat/completions", {"response_format": {"type": "json_object"}}, "response_format"),
        ("/v1/chat/completions", {"model": 3}, "model"),
        ("/v1/chat/completions", {"max_tokens": 250}, "max_tokens"),
        ("/v1/chat/completions", {"max_completion_tokens": 250}, "max_completion_tokens"),
        (
            "/v1/chat/completions",
            {"messages": [{"role": "user", "content": "a", "tool_calls": [1]}]},
            "messages[0].tool_calls",
        ),
        (
            "/v1/chat/completions",
            {"messages": [{"role": "user", "content": "a", "contents": ""}]},
            "messages[0].contents",
        ),
        ("/v1/chat/completions", {"messages": [{"role": "u", "content": "a" * 300}]}, "messages"),
        ("/v1/completions", {"prompt": "a" * 300}, "prompt"),
        ("/v1/completions", {"logprobs": 0}, "logprobs"),
        ("/v1/completions", {"best_of": 2}, "best_of"),
    ],
)
def test_fields_outside_the_sampling_parameters(
    url: str, path: str, change: dict[str, Any], field: str
) -> None:
    refused(httpx.post(url + path, content=json.dumps(body_of(path) | change)), field)


def test_a_name_that_is_not_unicode_is_answered(url: str) -> None:
    body = b'{"input_ids": [40], "sampling_params": {"\\ud800": 1}}'
    refused(httpx.post(f"{url}/generate", content=body), "sampling_params.\\ud800")


def test_openais_client_gets_its_own_error_type(url: str) -> None:
    with openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
        with pytest.raises(openai.BadRequestError) as found:
            client.chat.completions.create(model="tiny", messages=MESSAGES, top_p=0.5)
        assert found.value.param == "top_p"
        with pytest.raises(openai.NotFoundError, match="/v1/embeddings"):
            client.embeddings.create(model="tiny", input="a")
    assert httpx.get(f"{url}/generate").json()["error"]["code"] == 405


DEEP = (5, 60, 500, 900, 940, 960, 970, 980, 985, 990, 995, 1000, 5000)


@pytest.mark.parametrize(
    ("path", "template"),
    [
        ("/generate", '{"input_ids": @}'),
        ("/generate", '{"input_ids": [@]}'),
        ("/generate", '{"text": @}'),
        ("/generate", '{"input_ids": [40], "rid": @}'),
        ("/generate", '{"input_ids": [40], "sampling_params": @}'),
        ("/generate", '{"input_ids": [40], "sampling_params": {"stop": @}}'),
        ("/generate", '{"input_ids": [40], "sampling_params": {"stop_token_ids": [@]}}'),
        ("/generate", '{"input_ids": [40], "sampling_params": {"top_p": @}}'),
        ("/generate", '{"input_ids": [40], "sampling_params": {"max_new_tokens": @}}'),
        ("/v1/completions", '{"prompt": @}'),
        ("/v1/chat/completions", '{"messages": [{"role": "user", "content": @}]}'),
        ("/v1/chat/completions", '{"messages": [], "response_format": @}'),
    ],
)
def test_deep_nesting_is_refused_at_every_depth(url: str, path: str, template: str) -> None:
    """Around the depth that the JSON parser still takes and later code may not."""
    with httpx.Client(base_url=url) as client:
        for depth in DEEP:
            for opening, closing in (("[", "]"), ('{"a":', "}")):
                nested = opening * depth + "1" + closing * depth
                reply = client.post(path, content=template.replace("@", nested))
                assert reply.status_code == 400, (depth, reply.text)
                assert len(reply.json()["error"]["message"]) < 600
        assert client.get("/health").status_code == 200


def test_a_long_body_is_refused_before_it_is_whole(tmp_path: Path) -> None:
    make_folder(tmp_path)
    add_tokenizer(tmp_path)
    limit = 4096
    with serve(tmp_path, max_body_bytes=limit) as (base, state):
        for path in PATHS:
            message = refused(httpx.post(base + path, content=b" " * (limit + 1)), "body", 413)
            assert str(limit) in message and "--max-body-bytes" in message
        fits = b'{"input_ids": [40], "sampling_params": {"max_new_tokens": 2}}'.ljust(limit)
        assert httpx.post(f"{base}/generate", content=fits).status_code == 200
        address = urlsplit(base)
        assert address.hostname and address.port
        # A body that never ends is answered all the same.
        with socket.create_connection((address.hostname, address.port), timeout=30) as endless:
            endless.sendall(
                b"POST /generate HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
            )
            for _ in range(8):
                endless.sendall(b"400\r\n" + b" " * 1024 + b"\r\n")
            assert endless.recv(4096).startswith(b"HTTP/1.1 413")
        # Nor does one that breaks off hurt.
        with socket.create_connection((address.hostname, address.port), timeout=30) as broken:
            broken.sendall(b"POST /generate HTTP/1.1\r\nHost: x\r\nContent-Length: 99\r\n\r\n{")
        assert httpx.get(f"{base}/health").status_code == 200
        assert state.scheduler.load == (0, 0)
