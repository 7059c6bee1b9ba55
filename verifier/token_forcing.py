"""Token forcing: is every committed token stock's own choice at its position, and the end too?

Stock reads prompt and answer in one pass without speculation; each token is the argmax (by value),
a tie, a near-tie within the policy's gap, or a mismatch. Anything that is not a number is a
mismatch.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from engines.answers import Answer
from verifier.ending import StopRules, check_ending
from verifier.errors import ForcingError
from verifier.forced import Position
from verifier.margins import gap
from verifier.policy import MarginPolicy, numeric_floor


class TokenClass(StrEnum):
    ARGMAX = "argmax"
    EXACT_TIE = "exact_tie"
    NEAR_TIE = "near_tie"
    MISMATCH = "mismatch"
    UNDECIDED = "undecided"


@dataclass(frozen=True)
class AnswerCheck:
    """One answer, scored. Positions count from 0 at the first output token.

    `worst_gap_ulps` is in the policy's unit (BF16 ULPs where stock serves raw logits).
    `exact_ties` are FP32 ties that only the order of summation decides. `fresh_*` leave out the
    first tokens that an earlier answer to the same prompt already gave: a repeat of a
    deterministic engine is no new evidence. `gaps` are those of every token that is not an argmax.
    `undecided` tokens (`verifier.second_look`) are in no other count.
    """

    request_id: str
    tokens_checked: int
    mismatches: int
    near_ties: int
    exact_ties: int
    not_finite: int
    worst_gap_ulps: float
    first_bad_position: int | None
    end_ok: bool
    end_reason: str
    fresh_tokens: int
    fresh_near_ties: int
    gaps: tuple[float, ...] = ()
    family: str = ""
    undecided: int = 0

    @property
    def ok(self) -> bool:
        return self.mismatches == 0 and self.end_ok


def classify(
    value: float | None, position: Position, policy: MarginPolicy
) -> tuple[TokenClass, float]:
    """Class and gap of a token with `value` against the best value of `position`."""
    values = [v for _, v in position.top]
    if value is None or not values or not all(map(math.isfinite, [value, *values])):
        return TokenClass.MISMATCH, math.inf
    top = max(values)
    distance = gap(top, value, policy.unit, policy.least_magnitude)
    if distance == 0.0:
        return TokenClass.ARGMAX, 0.0
    if policy.kind == "exact":
        tie = top - value <= numeric_floor(top, position.raw)
        return (TokenClass.EXACT_TIE if tie else TokenClass.MISMATCH), distance
    near = distance <= policy.allowed_gap and math.isfinite(distance)
    return (TokenClass.NEAR_TIE if near else TokenClass.MISMATCH), distance


def check_answer(
    answer: Answer,
    positions: Sequence[Position],
    policy: MarginPolicy,
    rules: StopRules,
    *,
    fresh_from: int = 0,
    undecided: frozenset[int] = frozenset(),
) -> AnswerCheck:
    """Score one answer against stock's `positions` (N + 1 of them); a wrong token at an `undecided`
    one is left out.

    Raises:
        ForcingError: positions do not belong to this answer, or are in another unit.
    """
    ids = answer.output_ids
    _check_positions(answer, positions, policy)
    scored = [classify(p.token_logit, p, policy) for p in positions[:-1]]
    for i in undecided:
        if scored[i][0] is TokenClass.MISMATCH:
            scored[i] = TokenClass.UNDECIDED, 0.0
    ending = check_ending(answer, rules)
    end_ok, end_reason, bad = ending.ok, ending.reason, ending.bad_position
    if ending.needs_stop_after:
        after = positions[-1]
        best = max((v for i, v in after.top if i in ending.stop_ids), default=None)
        scored.append(classify(best, after, policy))
        if scored[-1][0] is TokenClass.MISMATCH:
            end_ok, end_reason, bad = False, "early stop: stock would have gone on", len(ids)
    classes = [c for c, _ in scored]
    wrong = [i for i, c in enumerate(classes) if c is TokenClass.MISMATCH]
    bad_positions = wrong[:1] + ([bad] if bad is not None else [])
    gaps = tuple(g for _, g in scored if g > 0.0)
    fresh = classes[fresh_from:]
    return AnswerCheck(
        request_id=answer.request.id,
        tokens_checked=len(scored) - classes.count(TokenClass.UNDECIDED),
        mismatches=len(wrong),
        near_ties=classes.count(TokenClass.NEAR_TIE),
        exact_ties=classes.count(TokenClass.EXACT_TIE),
        not_finite=sum(1 for g in gaps if math.isinf(g)),
        worst_gap_ulps=max(gaps, default=0.0),
        first_bad_position=min(bad_positions, default=None),
        end_ok=end_ok,
        end_reason=end_reason,
        fresh_tokens=len(fresh) - fresh.count(TokenClass.UNDECIDED),
        fresh_near_ties=fresh.count(TokenClass.NEAR_TIE),
        gaps=gaps,
        family=answer.request.family,
        undecided=classes.count(TokenClass.UNDECIDED),
    )


def _check_positions(answer: Answer, positions: Sequence[Position], policy: MarginPolicy) -> None:
    ids, name = answer.output_ids, answer.request.id
    if len(positions) != len(ids) + 1:
        raise ForcingError(
            f"stock returned {len(positions)} positions for {len(ids)} tokens of request {name}",
            "the forcing engine must return one position a token and the choice after the last",
        )
    for i, (token, position) in enumerate(zip(ids, positions, strict=False)):
        if position.token_id != token:
            raise ForcingError(
                f"request {name}, position {i}: stock scored {position.token_id}, not {token}"
            )
        best = max((v for _, v in position.top), default=-math.inf)
        if position.token_logit is not None and position.token_logit > best:
            raise ForcingError(
                f"request {name}, position {i}: token above stock's own top list",
                "the forcing engine's top list must hold its best token",
            )
    if policy.kind == "near_tie" and any(p.raw != (policy.unit == "bf16_ulp") for p in positions):
        raise ForcingError(
            f"request {name}: margins are in {policy.unit}, stock served another unit",
            "calibrate again on the engine that does the forcing",
        )
