"""Checks of a batch before any token is forced: one well-formed answer for each request sent.

The requests are the farm's own; nothing an engine returned is trusted to describe itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from engines.answers import Answer, GenerationRequest

FINISH_REASONS = ("stop", "length")
FORGED = frozenset({"count", "order", "prompt", "terms"})


@dataclass(frozen=True)
class RequestProblem:
    """`kind`: count, order, prompt, terms (forged) or ids, length, finish (malformed)."""

    kind: str
    request_id: str
    detail: str

    @property
    def forged(self) -> bool:
        """True where the batch is not the batch that was asked for."""
        return self.kind in FORGED


def check_requests(
    requests: Sequence[GenerationRequest], answers: Sequence[Answer], vocab_size: int
) -> list[RequestProblem]:
    """Every problem found, in order; empty when each request has exactly its own answer."""
    if len(answers) != len(requests):
        detail = f"{len(answers)} answers for {len(requests)} requests"
        return [RequestProblem("count", "", detail)]
    problems = []
    for request, answer in zip(requests, answers, strict=True):
        problem = _check_one(request, answer, vocab_size)
        if problem is not None:
            problems.append(RequestProblem(problem[0], request.id, problem[1]))
    return problems


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
