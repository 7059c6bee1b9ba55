"""A batch of answers: forced on stock, each (prompt, output) once, then scored."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from engines.answers import Answer
from verifier.ending import StopRules
from verifier.forced import Forcer, Pair, Position
from verifier.margins import Unit
from verifier.policy import MarginPolicy
from verifier.report import ForcingReport
from verifier.second_look import Undecided
from verifier.token_forcing import check_answer

Forced = Mapping[Pair, Sequence[Position]]


def force_answers(answers: Sequence[Answer], force: Forcer, known: Forced | None = None) -> Forced:
    """Positions by (prompt ids, output ids); what is in `known` is not forced again."""
    found = dict(known or {})
    for answer in answers:
        key = answer.request.prompt_ids, answer.output_ids
        if key not in found:
            found[key] = force(*key)
    return found


def unit_of(forced: Forced, otherwise: Unit = "bf16_ulp") -> Unit:
    """The unit of what stock served: ULPs for raw logits, nats for log-probabilities."""
    first = next((positions[0] for positions in forced.values()), None)
    if first is None:
        return otherwise
    return "bf16_ulp" if first.raw else "nats"


def best_values(answers: Iterable[Sequence[Position]]) -> list[float]:
    """Stock's best value at every position of every answer."""
    positions = [position for answer in answers for position in answer if position.top]
    return [max(value for _, value in position.top) for position in positions]


def score(
    answers: Sequence[Answer],
    forced: Forced,
    policy: MarginPolicy,
    rules: StopRules,
    undecided: Undecided | None = None,
) -> ForcingReport:
    """A row an answer; tokens that an earlier answer to the same prompt gave are not fresh, and
    wrong ones at `undecided` positions are left out."""
    left_out = undecided or {}
    earlier: dict[tuple[int, ...], list[tuple[int, ...]]] = {}
    rows = []
    for answer in answers:
        prompt, ids = answer.request.prompt_ids, answer.output_ids
        seen = earlier.setdefault(prompt, [])
        fresh_from = max((common_prefix(ids, other) for other in seen), default=0)
        if ids in seen:  # a left-out stop token was scored with the first copy
            fresh_from += 1
        else:
            seen.append(ids)
        rows.append(
            check_answer(
                answer,
                forced[prompt, ids],
                policy,
                rules,
                fresh_from=fresh_from,
                undecided=left_out.get((prompt, ids), frozenset()),
            )
        )
    return ForcingReport(tuple(rows), policy.unit)


def force_all(
    answers: Sequence[Answer], force: Forcer, policy: MarginPolicy, rules: StopRules
) -> ForcingReport:
    """Force every answer and score it."""
    return score(answers, force_answers(answers, force), policy, rules)


def common_prefix(a: Sequence[int], b: Sequence[int]) -> int:
    """How many ids two sequences begin with alike."""
    pairs = zip(a, b, strict=False)
    return next((i for i, (x, y) in enumerate(pairs) if x != y), min(len(a), len(b)))
