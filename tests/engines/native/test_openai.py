"""OpenAI's client against the native server."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import openai
import pytest

from tests.engines.native.serving import serve
from tests.engines.native.tiny import add_tokenizer, make_folder, reference_greedy

MESSAGES: Any = [{"role": "user", "content": "Hi there"}]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    folder = tmp_path_factory.mktemp("tiny")
    reference = make_folder(folder)
    add_tokenizer(folder)
    with (
        serve(folder) as (url, state),
        openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client,
    ):
        yield client, state, reference, url


def test_chat_streamed_and_whole_agree_with_the_reference(served: Any) -> None:
    client, state, reference, _ = served
    ids = state.tokenizer.chat(MESSAGES)
    assert state.tokenizer.decode(ids) == "user:Hi thereassistant:"
    whole = client.chat.completions.create(
        model="tiny", messages=MESSAGES, max_completion_tokens=24, temperature=0
    )
    truth = reference_greedy(reference, ids, 24)
    cut = truth[: truth.index(1) + 1] if 1 in truth else truth
    assert whole.choices[0].message.content == state.tokenizer.decode(cut)
    assert whole.usage.prompt_tokens == len(ids)
    assert whole.usage.completion_tokens == len(cut)
    chunks = list(
        client.chat.completions.create(
            model="tiny",
            messages=MESSAGES,
            max_tokens=24,
            stream=True,
            stream_options={"include_usage": True},
        )
    )
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert text == whole.choices[0].message.content
    assert chunks[-1].usage == whole.usage
    reasons = [c.choices[0].finish_reason for c in chunks if c.choices]
    assert reasons[-1] == whole.choices[0].finish_reason
    assert set(reasons[:-1]) == {None}


def test_completions_and_a_stop_string(served: Any) -> None:
    client, state, _, _ = served
    whole = client.completions.create(model="tiny", prompt="abc", max_tokens=40).choices[0].text
    stop = whole[10:12]
    expected = whole[: whole.index(stop)]
    cut = client.completions.create(model="tiny", prompt="abc", max_tokens=40, stop=stop)
    assert cut.choices[0].text == expected
    assert cut.choices[0].finish_reason == "stop"
    chunks = client.completions.create(
        model="tiny", prompt="abc", max_tokens=40, stop=stop, stream=True
    )
    assert "".join(c.choices[0].text for c in chunks) == expected
    by_ids = client.completions.create(
        model="tiny", prompt=state.tokenizer.encode("abc"), max_tokens=40
    )
    assert by_ids.choices[0].text == whole


def test_models(served: Any) -> None:
    client, *_ = served
    assert [m.id for m in client.models.list()] == ["tiny"]


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("chat/completions", {}, "messages"),
        ("chat/completions", {"messages": []}, "messages"),
        ("chat/completions", {"messages": ["x"]}, "messages[0]"),
        ("chat/completions", {"messages": [{"role": "user", "content": 3}]}, "messages[0].content"),
        ("chat/completions", {"messages": MESSAGES, "temperature": 1}, "temperature"),
        ("chat/completions", {"messages": MESSAGES, "n": 2}, "n"),
        ("chat/completions", {"messages": MESSAGES, "logprobs": True}, "logprobs"),
        ("chat/completions", {"messages": MESSAGES, "max_tokens": 0}, "max_tokens"),
        ("completions", {"prompt": 3}, "prompt"),
        ("completions", {"prompt": [1, "a"]}, "prompt[1]"),
        ("completions", {"prompt": "a" * 300}, "prompt"),
    ],
)
def test_bad_bodies_are_refused_by_field(
    served: Any, path: str, body: dict[str, Any], field: str
) -> None:
    reply = httpx.post(f"{served[3]}/v1/{path}", json=body)
    assert reply.status_code == 400
    assert field in reply.json()["error"]["message"]
