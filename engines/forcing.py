"""Token forcing over HTTP: what a target chooses at each position of a given answer.

One prefill of prompt + answer, no decoding. Position j is the target's distribution given the
prompt and the answer's first j tokens; the last entry is its choice after the whole answer (end of
sequence, if the answer was complete). Values are raw logits where the engine serves them
(`return_raw_logits_topk`), else log-probabilities: only differences within a position mean
something in both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from engines.errors import EngineError, EngineProtocolError
from engines.http_client import EngineClient
from engines.json_fields import finite, rows, table, token_id


@dataclass(frozen=True)
class ForcedPosition:
    """One position: the forced token with its value (None after the end), and the best `top_k`
    as (token id, value), best first. `raw`: values are logits, else log-probabilities."""

    token_id: int | None
    token_logit: float | None
    top: tuple[tuple[int, float], ...]
    raw: bool


def force(
    client: EngineClient,
    prompt_ids: Sequence[int],
    output_ids: Sequence[int],
    top_k: int = 4,
) -> tuple[ForcedPosition, ...]:
    """N + 1 positions for an answer of N tokens.

    Raises:
        EngineProtocolError: missing, misaligned, NaN or unordered values (fails closed).
        BadRequest, EngineTimeout, EngineCrashed: as any request.
    """
    if not prompt_ids or top_k < 1:
        raise EngineError("forcing needs a prompt of at least one token and top_k >= 1")
    reply = client.post(
        "/generate",
        {
            "input_ids": [*prompt_ids, *output_ids],
            "sampling_params": {"temperature": 0.0, "max_new_tokens": 0},
            "return_logprob": True,
            "logprob_start_len": len(prompt_ids) - 1,
            "top_logprobs_num": top_k,
            "return_raw_logits_topk": top_k,
            "stream": False,
        },
    )
    meta = table(reply, "meta_info", "forcing")
    raw = meta.get("input_raw_logits_topk") is not None
    names = (
        ("input_token_raw_logits", "input_raw_logits_topk", "output_raw_logits_topk")
        if raw
        else ("input_token_logprobs", "input_top_logprobs", "output_top_logprobs")
    )
    tokens, tops, after = (_rows(meta, name) for name in names)
    expected = len(output_ids) + 1
    for name, found in zip(names[:2], (tokens, tops), strict=True):
        if len(found) != expected:
            raise EngineProtocolError(f"forcing: {name} has {len(found)} rows, not {expected}")
    if len(after) != 1:
        raise EngineProtocolError(f"forcing: {names[2]} has {len(after)} rows, not 1")
    # Row 0 stands for the prompt's last token, which nothing within the range predicts.
    positions = [
        ForcedPosition(wanted, _token_value(row, wanted, names[0]), _top(top, top_k, names[1]), raw)
        for wanted, row, top in zip(output_ids, tokens[1:], tops[1:], strict=True)
    ]
    positions.append(ForcedPosition(None, None, _top(after[0], top_k, names[2]), raw))
    return tuple(positions)


def _rows(meta: dict[str, Any], name: str) -> list[Any]:
    return rows(meta, name, "forcing")


def _pair(row: object, name: str) -> tuple[int, float]:
    if not isinstance(row, list) or len(row) < 2:
        raise EngineProtocolError(f"forcing: {name}: not [value, token id]: {row!r:.120}")
    what = f"forcing: {name}"
    return token_id(row[1], what), finite(row[0], what)


def _token_value(row: object, wanted: int, name: str) -> float:
    found, value = _pair(row, name)
    if found != wanted:
        raise EngineProtocolError(f"forcing: {name}: token {found}, forced was {wanted}")
    return value


def _top(row: object, top_k: int, name: str) -> tuple[tuple[int, float], ...]:
    if not isinstance(row, list) or not row:
        raise EngineProtocolError(f"forcing: {name}: no candidates: {row!r:.120}")
    top = tuple(_pair(item, name) for item in row[:top_k])
    if len(top) < top_k:
        raise EngineProtocolError(f"forcing: {name}: {len(top)} candidates, asked for {top_k}")
    if any(a[1] < b[1] for a, b in pairwise(top)):
        raise EngineProtocolError(f"forcing: {name}: not in descending order: {top!r:.200}")
    return top
