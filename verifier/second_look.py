"""A wrong token, or a position where the target itself does not know in BF16?

Stock's BF16 is one way among several to round the same target. Once in ten thousand positions or
more rarely an honest engine, which rounds in other places, is further from stock than any
calibration saw. A token that lies too far below stock's best is therefore looked at again; its
position decides nothing, so that the token counts neither as wrong nor as checked, where

- stock with the same weights in FP32 chooses that very token: the target in exact arithmetic does;
- or stock contradicts FP32 or itself: its best value moves by more than `MOVED` between FP32 and
  its own BF16 paths (whole answers, shorter ones, one row as in decoding, a few rows as in a
  verify step), because a hidden state is a small difference of large terms there.

docs/losslessness.md has examples. Only stock's values decide, in the context that the
candidate's tokens make. A batch with more than `SECOND_LOOKS` wrong tokens has another reason and
gets no second look.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from engines.answers import Answer
from verifier.forced import Pair, Position
from verifier.margins import Unit, gap
from verifier.policy import MarginPolicy, exact_policy
from verifier.token_forcing import TokenClass, classify

SECOND_LOOKS = 3
# The best value of 7,675 positions of text moved by 12 ULPs at most between three row shapes (by 5
# in all but one of a thousand); FP32's lay 14.1 at most from stock's at all but two of 69,543.
# Where stock does not know it moves by tens.
MOVED: dict[Unit, float] = {"bf16_ulp": 16.0, "nats": 2.0}

Forced = Sequence[Sequence[Position]]
"""Positions by pair."""
OtherPaths = Callable[[Sequence[Pair]], Sequence[Forced]]
"""The same pairs forced along each of stock's other paths: positions by path, then by pair."""
Undecided = Mapping[Pair, frozenset[int]]
Place = tuple[Pair, int]
_EXACT = exact_policy()


@dataclass(frozen=True)
class SecondLook:
    """How stock is asked again: along its other paths, and on the FP32 twin (None: it has none)."""

    other_paths: OtherPaths
    in_fp32: Callable[[Sequence[Pair]], Forced] | None = None


def undecided(
    answers: Sequence[Answer],
    forced: Mapping[Pair, Sequence[Position]],
    policy: MarginPolicy,
    look: SecondLook,
) -> Undecided:
    """Positions, by answer, where the target does not know; empty under an exact policy.

    Raises:
        engines.errors.EngineError: stock failed along another path.
    """
    doubtful = _doubtful(answers, forced, policy) if policy.kind == "near_tie" else []
    if not doubtful or len(doubtful) > SECOND_LOOKS:
        return {}
    seen = {place: [forced[place[0]][place[1]]] for place in doubtful}
    chosen: set[Place] = set()
    if look.in_fp32 is not None:
        for place, position in _at(doubtful, look.in_fp32([_up_to(p) for p in doubtful])):
            seen[place].append(position)
            if classify(position.token_logit, position, _EXACT)[0] is TokenClass.ARGMAX:
                chosen.add(place)

    def stands(place: Place) -> bool:
        return place not in chosen and _moved(seen[place], policy) <= MOVED[policy.unit]

    # The other paths take longest: a long prompt one row a pass.
    if rest := [place for place in doubtful if stands(place)]:
        for path in look.other_paths([_up_to(place) for place in rest]):
            for place, position in _at(rest, path):
                seen[place].append(position)
    found: dict[Pair, set[int]] = defaultdict(set)
    for pair, at in (place for place in doubtful if not stands(place)):
        found[pair].add(at)
    return {pair: frozenset(places) for pair, places in found.items()}


def _up_to(place: Place) -> Pair:
    (prompt, ids), at = place
    return prompt, ids[: at + 1]


def _at(places: Sequence[Place], forced: Forced) -> list[tuple[Place, Position]]:
    """The position of each place, of pairs that were forced up to there."""
    return [(place, found[place[1]]) for place, found in zip(places, forced, strict=True)]


def _doubtful(
    answers: Sequence[Answer], forced: Mapping[Pair, Sequence[Position]], policy: MarginPolicy
) -> list[Place]:
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
