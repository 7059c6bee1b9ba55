"""Token forcing against the fake engine's own rule, and against replies it must refuse."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest

from engines.errors import EngineError, EngineProtocolError
from engines.forcing import force
from engines.http_client import EngineClient

from .conftest import Launch
from .fakes.rule import greedy, row

PROMPT = [5, 6, 7]


@pytest.mark.parametrize("raw", [False, True])
def test_positions_are_the_targets_choices(launch_fake: Launch, raw: bool) -> None:
    client = launch_fake(raw=raw).client()
    answer = list(greedy(PROMPT, 6))
    answer[3] = (answer[3] + 1) % 97
    positions = force(client, PROMPT, answer, top_k=3)
    assert len(positions) == 7
    for j, position in enumerate(positions):
        values = row(PROMPT + answer[:j])
        best = sorted(values, reverse=True)[:3]
        assert [value for _, value in position.top] == best
        assert all(values[i] == value for i, value in position.top)
        assert position.raw is raw
        if j < 6:
            assert position.token_id == answer[j]
            assert position.token_logit == values[answer[j]]
    assert positions[6].token_id is None and positions[6].token_logit is None
    wrong = [j for j in range(6) if positions[j].token_id != positions[j].top[0][0]]
    assert wrong == [3, *(j for j in wrong if j > 3)]


def test_empty_answer_and_prompt(launch_fake: Launch) -> None:
    client = launch_fake().client()
    (only,) = force(client, PROMPT, [])
    assert only.token_id is None and only.top[0][1] == max(row(PROMPT))
    with pytest.raises(EngineError, match="at least one token"):
        force(client, [], [1])


class Replay(EngineClient):
    """Answers with a fixed reply."""

    def __init__(self, reply: dict[str, Any]) -> None:
        super().__init__("http://127.0.0.1:9")
        self.reply = reply

    def post(self, path: str, payload: dict[str, Any]) -> dict[str, Any]:
        return self.reply


GOOD: dict[str, Any] = {
    "input_token_logprobs": [[None, 7, None], [-0.5, 1, None], [-0.25, 2, None]],
    "input_top_logprobs": [None, [[-0.5, 1, None], [-1.0, 3, None]], [[-0.25, 2], [-0.25, 4]]],
    "output_top_logprobs": [[[-0.1, 0, None], [-3.0, 5, None]]],
}


def broken(key: str, *path: int, value: object) -> dict[str, Any]:
    meta = copy.deepcopy(GOOD)
    node: Any = meta
    for step in [key, *path][:-1]:
        node = node[step]
    node[[key, *path][-1]] = value
    return meta


def forced(meta: dict[str, Any]) -> Any:
    return force(Replay({"output_ids": [], "meta_info": meta}), PROMPT, [1, 2], top_k=2)


def test_the_good_reply_passes() -> None:
    assert [p.token_logit for p in forced(GOOD)] == [-0.5, -0.25, None]


@pytest.mark.parametrize(
    "meta",
    [
        broken("input_token_logprobs", 1, 0, value=math.nan),
        broken("input_token_logprobs", 1, 0, value=None),
        broken("input_token_logprobs", 1, 1, value=9),
        broken("input_token_logprobs", value=None),
        broken("input_token_logprobs", value=GOOD["input_token_logprobs"][:2]),
        broken("input_token_logprobs", 2, value=None),
        broken("input_top_logprobs", 2, value=None),
        broken("input_top_logprobs", 2, 0, 0, value=math.inf),
        broken("input_top_logprobs", 1, 0, 0, value=-2.0),
        broken("input_top_logprobs", 1, value=[[-0.5, 1, None]]),
        broken("input_top_logprobs", 1, 0, 1, value="1"),
        broken("output_top_logprobs", value=[]),
        broken("output_top_logprobs", value=[None]),
        broken("output_top_logprobs", 0, 1, 0, value="-3"),
        {**GOOD, "input_raw_logits_topk": GOOD["input_top_logprobs"]},
        {},
    ],
)
def test_fails_closed(meta: dict[str, Any]) -> None:
    with pytest.raises(EngineProtocolError, match="forcing"):
        forced(meta)
