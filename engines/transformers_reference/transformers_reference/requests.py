"""The body of POST /generate, checked: what is wrong is said, and nothing wrong gets further."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import Any

_UNSUPPORTED = ("return_logprob", "return_raw_logits_topk")


class BadInput(Exception):
    """The request cannot be served as asked (HTTP 400)."""


@dataclass(frozen=True)
class GenerateRequest:
    """One greedy request. `text` is encoded by the caller where `input_ids` is None."""

    rid: str
    input_ids: tuple[int, ...] | None
    text: str | None
    max_new_tokens: int
    stop_token_ids: tuple[int, ...]
    ignore_eos: bool
    stream: bool


def parse(body: Any) -> GenerateRequest:
    """Check a decoded JSON body.

    Raises:
        BadInput: naming the field.
    """
    if not isinstance(body, dict):
        raise BadInput("the body must be a JSON object")
    for field in _UNSUPPORTED:
        if body.get(field):
            raise BadInput(f"{field} is not supported by the transformers reference")
    ids, text = body.get("input_ids"), body.get("text")
    if (ids is None) == (text is None):
        raise BadInput("give exactly one of input_ids and text")
    if text is not None and not isinstance(text, str):
        raise BadInput("text must be a string")
    sampling = body.get("sampling_params", {})
    if not isinstance(sampling, dict):
        raise BadInput("sampling_params must be an object")
    temperature = sampling.get("temperature", 0.0)
    if isinstance(temperature, bool) or not isinstance(temperature, int | float) or temperature:
        raise BadInput(f"sampling_params.temperature = {temperature!r}: only 0 (greedy) is served")
    count = sampling.get("max_new_tokens", 128)
    if not _is_int(count) or count < 0:
        raise BadInput(f"sampling_params.max_new_tokens = {count!r} must be an integer >= 0")
    return GenerateRequest(
        rid=str(body.get("rid") or uuid.uuid4().hex),
        input_ids=None if ids is None else _token_ids(ids, "input_ids"),
        text=text,
        max_new_tokens=count,
        stop_token_ids=_token_ids(
            sampling.get("stop_token_ids") or [], "sampling_params.stop_token_ids"
        ),
        ignore_eos=_flag(sampling, "ignore_eos"),
        stream=_flag(body, "stream"),
    )


def check_length(prompt: tuple[int, ...], new: int, vocab_size: int, max_total_tokens: int) -> None:
    """Raise BadInput for ids outside the vocabulary, an empty or a too long prompt."""
    if not prompt:
        raise BadInput("the prompt is empty")
    outside = [i for i in prompt if not 0 <= i < vocab_size]
    if outside:
        raise BadInput(f"input_ids holds {outside[0]}, outside the vocabulary of {vocab_size}")
    if len(prompt) + new > max_total_tokens:
        raise BadInput(
            f"{len(prompt)} prompt tokens + max_new_tokens {new} exceed "
            f"max_total_tokens {max_total_tokens}"
        )


def _token_ids(value: Any, field: str) -> tuple[int, ...]:
    if not isinstance(value, list) or not all(_is_int(i) for i in value):
        raise BadInput(f"{field} must be a list of integers")
    return tuple(value)


def _flag(table: dict[str, Any], field: str) -> bool:
    value = table.get(field, False)
    if not isinstance(value, bool):
        raise BadInput(f"{field} = {value!r} must be true or false")
    return value


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
