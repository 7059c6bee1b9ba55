"""Which held-out prompts a confirmation asks, as a list of draws that anyone with the seed can
repeat: the certificate records the list, `specfarm certify` draws it again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from engines.answers import GenerationRequest
from farm.campaign.context import EXACT_PROMPTS, spread

HeldoutPrompts = Callable[[str], tuple[GenerationRequest, ...]]


@dataclass(frozen=True)
class Draw:
    """`purpose` seeds it together with the campaign's secret. `take`: so many of its prompts,
    spread evenly over the families; None: all that no earlier draw of the list asks."""

    purpose: str
    take: int | None = None


@dataclass(frozen=True)
class Drawn:
    """A draw and what it gave."""

    draw: Draw
    requests: tuple[GenerationRequest, ...]


def confirmation_draws(candidate_id: str, launches: int, exact: bool) -> tuple[Draw, ...]:
    """One draw a launch and, where there is an FP32 twin (`exact`), a few prompts for it."""
    timed = tuple(Draw(f"confirm:{candidate_id}:{launch}") for launch in range(launches))
    return (*timed, Draw(f"exact:{candidate_id}", EXACT_PROMPTS)) if exact else timed


def drawn(
    heldout: HeldoutPrompts, draws: Sequence[Draw], asked: Iterable[tuple[int, ...]] = ()
) -> tuple[Drawn, ...]:
    """The requests of each draw, in order.

    Args:
        asked: prompts that count as asked before the first draw.
    """
    seen = set(asked)
    found = []
    for draw in draws:
        requests = heldout(draw.purpose)
        if draw.take is not None:
            found.append(Drawn(draw, spread(requests, draw.take)))
            continue
        fresh = tuple(r for r in requests if r.prompt_ids not in seen)
        seen |= {r.prompt_ids for r in fresh}
        found.append(Drawn(draw, fresh))
    return tuple(found)
