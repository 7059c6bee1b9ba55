"""Does an engine give the same ids to the same prompt each time? Stock's answers are the control.

An engine that reads what it never wrote may pass by luck; asked again, it answers otherwise. Where
two tokens are tied or nearly so (token forcing knows), either is right and nothing follows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from engines.answers import Answer, GenerationRequest

# Whether two answers to a request may part at an output position: both tokens there were forced
# and are (nearly) tied. None: not forced, nobody knows.
MayPart = Callable[[GenerationRequest, int], bool | None]


@dataclass(frozen=True)
class Determinism:
    """`deterministic`: `no` only where stock always gave the same ids and the candidate did not,
    at a position that is no tie. `repeated` counts prompts asked more than once; `parted` those
    whose answers differ at all, `untied` those that differ where nothing was tied."""

    deterministic: Literal["yes", "no", "cannot tell"]
    reason: str
    repeated: int = 0
    parted: int = 0
    untied: int = 0
    stock_repeated: int = 0
    stock_parted: int = 0

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def determinism(
    candidate: Sequence[Answer], stock: Sequence[Answer], may_part: MayPart
) -> Determinism:
    """Compare each arm's answers to the same request over repeats and launches."""
    groups, controls = _repeats(candidate), _repeats(stock)
    splits = {request: at for request, at in map(_first_split, groups) if at is not None}
    stock_parted = sum(at is not None for _, at in map(_first_split, controls))
    allowed = {request: may_part(request, at) for request, at in splits.items()}
    untied = [request for request, tied in allowed.items() if tied is False]
    unknown = [request for request, tied in allowed.items() if tied is None]
    counts = Determinism(
        "cannot tell", "", len(groups), len(splits), len(untied), len(controls), stock_parted
    )

    def say(word: Literal["yes", "no", "cannot tell"], reason: str) -> Determinism:
        return replace(counts, deterministic=word, reason=reason)

    if not groups:
        return say("cannot tell", "no prompt was asked twice")
    if not splits:
        return say("yes", f"the same ids for each of {len(groups)} repeated prompts")
    if not untied and not unknown:
        return say("yes", f"{len(splits)} of {len(groups)} repeated prompts part, all at ties")
    if stock_parted:
        return say("cannot tell", f"stock itself parts on {stock_parted} repeated prompts")
    if not controls:
        return say("cannot tell", "stock was asked no prompt twice")
    if not untied:
        return say("cannot tell", f"{len(unknown)} prompts part where no token was forced")
    first = untied[0]
    return say(
        "no",
        f"{len(untied)} of {len(groups)} repeated prompts get other ids each time, stock's never "
        f"do; first: request {first.id}, position {splits[first]}",
    )


def _repeats(answers: Sequence[Answer]) -> list[list[Answer]]:
    groups: dict[GenerationRequest, list[Answer]] = {}
    for answer in answers:
        groups.setdefault(answer.request, []).append(answer)
    return [group for group in groups.values() if len(group) > 1]


def _first_split(group: Sequence[Answer]) -> tuple[GenerationRequest, int | None]:
    """The first output position at which any two of the answers differ (an end counts), or None."""
    first, *others = group
    splits = [
        at for other in others if (at := _split(first.output_ids, other.output_ids)) is not None
    ]
    return first.request, min(splits, default=None)


def _split(a: Sequence[int], b: Sequence[int]) -> int | None:
    pairs = zip(a, b, strict=False)
    at = next((i for i, (x, y) in enumerate(pairs) if x != y), min(len(a), len(b)))
    return None if at == len(a) == len(b) else at
