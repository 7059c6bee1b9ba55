"""How far two arms' outputs agree, prompt by prompt. In BF16 lossless arms may differ at ties."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from engines.answers import Answer


@dataclass(frozen=True)
class Agreement:
    """`common_prefix_share`: tokens before the first difference over the longer answers' tokens."""

    pairs: int
    identical: int
    common_prefix_share: float


def output_agreement(one: Sequence[Answer], other: Sequence[Answer]) -> Agreement:
    """Pairs the k-th answer to each request with the k-th answer of the other arm."""
    waiting: dict[object, list[Answer]] = {}
    for answer in other:
        waiting.setdefault(answer.request, []).append(answer)
    pairs = identical = common = longest = 0
    for answer in one:
        partners = waiting.get(answer.request)
        if not partners:
            continue
        partner = partners.pop(0)
        a, b = answer.output_ids, partner.output_ids
        pairs += 1
        identical += a == b
        common += next(
            (i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b))
        )
        longest += max(len(a), len(b))
    return Agreement(pairs, identical, common / longest if longest else 1.0)
