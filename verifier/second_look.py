"""A wrong token, or a position where the target itself does not know in BF16?

Once in tens of thousands of positions, on random text, a hidden state is a small difference of
large terms: stock's own passes (whole answers, shorter ones, one row as in decoding, a few rows as
in a verify step) then give logits that have nothing to do with one another, and transformers' BF16
gives yet others (docs/losslessness.md has one). A token that lies too far below stock's best is
therefore looked at again along stock's other paths. Where stock's best value itself moves by more
than `MOVED` between them, the position decides nothing: the token there counts neither as wrong nor
as checked. Only stock's values decide that, in the context that the candidate's tokens make. A
batch with more than `SECOND_LOOKS` wrong tokens has another reason and gets no second look.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

from engines.answers import Answer
from verifier.forced import Pair, Position
from verifier.margins import Unit, gap
from verifier.policy import MarginPolicy
from verifier.token_forcing import TokenClass, classify

SECOND_LOOKS = 3
# The best value of 7,675 positions of text moved by 12 ULPs at most between three row shapes (by 5
# in all but one of a thousand); where stock does not know it moves by tens.
MOVED: dict[Unit, float] = {"bf16_ulp": 16.0, "nats": 2.0}

OtherPaths = Callable[[Sequence[Pair]], Sequence[Sequence[Sequence[Position]]]]
"""The same pairs forced along each of stock's other paths: positions by path, then by pair."""
Undecided = Mapping[Pair, frozenset[int]]


def undecided(
    answers: Sequence[Answer],
    forced: Mapping[Pair, Sequence[Position]],
    policy: MarginPolicy,
    other_paths: OtherPaths,
) -> Undecided:
    """Positions, by answer, where stock contradicts itself; empty under an exact policy.

    Raises:
        engines.errors.EngineError: stock failed along another path.
    """
    doubtful = _doubtful(answers, forced, policy) if policy.kind == "near_tie" else []
    if not doubtful or len(doubtful) > SECOND_LOOKS:
        return {}
    looks = other_paths([(prompt, ids[: at + 1]) for (prompt, ids), at in doubtful])
    found: dict[Pair, set[int]] = defaultdict(set)
    for number, (pair, at) in enumerate(doubtful):
        seen = [forced[pair][at], *(path[number][at] for path in looks)]
        if _moved(seen, policy) > MOVED[policy.unit]:
            found[pair].add(at)
    return {pair: frozenset(places) for pair, places in found.items()}


def _doubtful(
    answers: Sequence[Answer], forced: Mapping[Pair, Sequence[Position]], policy: MarginPolicy
) -> list[tuple[Pair, int]]:
    """Every wrong token of every different answer."""
    pairs = dict.fromkeys((a.request.prompt_ids, a.output_ids) for a in answers)
    return [
        (pair, at)
        for pair in pairs
        for at, position in enumerate(forced[pair][:-1])
        if classify(position.token_logit, position, policy)[0] is TokenClass.MISMATCH
    ]


def _moved(seen: Sequence[Position], policy: MarginPolicy) -> float:
    """How far stock's best value moves; 0 where any value is no number, which excuses nothing."""
    values = [v for position in seen for v in (position.token_logit, *(x for _, x in position.top))]
    if not all(v is not None and math.isfinite(v) for v in values):
        return 0.0
    tops = [max(v for _, v in position.top) for position in seen]
    return gap(max(tops), min(tops), policy.unit, policy.least_magnitude)
