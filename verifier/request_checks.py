"""Checks of a batch before any token is forced: one well-formed answer for each request sent.

The requests are the farm's own; nothing an engine returned is trusted to describe itself. What it
says of itself all the same (`meta`, its step counter) must at least agree with what it sent.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from engines.answers import Answer, GenerationRequest

FINISH_REASONS = ("stop", "length")
FORGED = frozenset({"count", "order", "prompt", "terms", "duplicate", "meta"})


@dataclass(frozen=True)
class RequestProblem:
    """`kind`: count, order, prompt, terms, duplicate, meta (forged) or ids, length, finish,
    numbers, arrivals (malformed)."""

    kind: str
    request_id: str
    detail: str

    @property
    def forged(self) -> bool:
        """True where the batch is not the batch that was asked for, or contradicts itself."""
        return self.kind in FORGED


def check_requests(
    requests: Sequence[GenerationRequest], answers: Sequence[Answer], vocab_size: int
) -> list[RequestProblem]:
    """Every problem found, in order; empty when each request has exactly its own answer."""
    if len(answers) != len(requests):
        detail = f"{len(answers)} answers for {len(requests)} requests"
        return [RequestProblem("count", "", detail)]
    problems = _duplicates(requests)
    for request, answer in zip(requests, answers, strict=True):
        problem = (
            _check_one(request, answer, vocab_size)
            or _check_arrivals(answer)
            or _check_meta(request, answer)
        )
        if problem is not None:
            problems.append(RequestProblem(problem[0], request.id, problem[1]))
    return problems


def _duplicates(requests: Iterable[GenerationRequest]) -> list[RequestProblem]:
    """One id for two prompts: an answer could be shown for the other. Repeats are fine."""
    first: dict[str, tuple[int, ...]] = {}
    return [
        RequestProblem("duplicate", request.id, "the id stands for two different prompts")
        for request in requests
        if first.setdefault(request.id, request.prompt_ids) != request.prompt_ids
    ]


def _check_one(
    request: GenerationRequest, answer: Answer, vocab_size: int
) -> tuple[str, str] | None:
    echoed, ids = answer.request, answer.output_ids
    if echoed.id != request.id:
        return "order", f"answers request {echoed.id!r}"
    if echoed.prompt_ids != request.prompt_ids:
        return "prompt", "another prompt than the one sent"
    if echoed != request:
        return "terms", "other limits or stop rules than those sent"
    if answer.finish_reason not in FINISH_REASONS:
        return "finish", f"finish reason {answer.finish_reason!r}, expected stop or length"
    for position, token in enumerate(ids):
        if isinstance(token, bool) or not isinstance(token, int) or not 0 <= token < vocab_size:
            return "ids", f"id {token!r} at position {position} is outside [0, {vocab_size})"
    if len(ids) > request.max_new_tokens:
        return "length", f"{len(ids)} tokens where at most {request.max_new_tokens} were asked for"
    return None


def _check_arrivals(answer: Answer) -> tuple[str, str] | None:
    """Times are finite and never run backwards, token counts grow up to the answer's length."""
    if not answer.arrivals:
        return None
    times = [answer.sent_s, *(seconds for seconds, _ in answer.arrivals)]
    counts = [count for _, count in answer.arrivals]
    if not all(math.isfinite(value) for value in (*times, *counts)):
        return "numbers", "an arrival is not a finite number"
    if any(later < earlier for earlier, later in pairwise(times)):
        return "arrivals", "arrival times run backwards"
    if any(later < earlier for earlier, later in pairwise([0, *counts])):
        return "arrivals", "token counts run backwards"
    if counts[-1] != len(answer.output_ids):
        return "arrivals", f"{counts[-1]} tokens arrived, the answer has {len(answer.output_ids)}"
    return None


def _check_meta(request: GenerationRequest, answer: Answer) -> tuple[str, str] | None:
    """What the engine says of its answer against the answer; what it leaves out is no problem."""
    found = _not_finite(answer.meta)
    if found is not None:
        return "numbers", f"meta_info.{found} is not a finite number"
    count = len(answer.output_ids)
    for name, truth in (("completion_tokens", count), ("prompt_tokens", len(request.prompt_ids))):
        claimed = answer.meta.get(name)
        if claimed is not None and claimed != truth:
            return "meta", f"{name} is {claimed!r:.40}, counted were {truth}"
    reason = answer.meta.get("finish_reason")
    kind = reason.get("type") if isinstance(reason, Mapping) else reason
    if kind is not None and kind != answer.finish_reason:
        return "meta", f"finish_reason is {kind!r:.40}, the answer ended by {answer.finish_reason}"
    steps = answer.verify_steps
    # Each verify step commits a token; the prompt's own pass may be counted as a step.
    if steps is not None and not 0 <= steps <= count + 1:
        return "meta", f"{steps} verify steps are claimed for {count} tokens"
    return None


def _not_finite(value: object, path: str = "") -> str | None:
    """The path of the first float that is no finite number, at any depth."""
    if isinstance(value, float):
        return None if math.isfinite(value) else path
    items: Iterable[tuple[object, object]] = ()
    if isinstance(value, Mapping):
        items = value.items()
    elif isinstance(value, list | tuple):
        items = enumerate(value)
    for key, inner in items:
        found = _not_finite(inner, f"{path}.{key}" if path else str(key))
        if found is not None:
            return found
    return None
