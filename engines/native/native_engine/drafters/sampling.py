"""One drafted token for each sequence: argmax, or a draw from the proposal distribution."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from native_engine.drafters.protocol import Ask


def choose(scores: Tensor, asks: Sequence[Ask]) -> tuple[Tensor, dict[int, Tensor]]:
    """Column of FP32 `scores` `[n, c]` for each ask: the largest, or a draw from
    `softmax(scores / T)` by the ask's own generator.

    Returns `[n]` columns and, by ask, the distribution `[c]` drawn from; where that is not finite,
    any column (on a GPU a draw from NaN would end the process)."""
    chosen = scores.argmax(dim=-1)
    drawn: dict[int, Tensor] = {}
    for i, ask in enumerate(asks):
        if ask.temperature > 0:
            q = torch.softmax(scores[i] / ask.temperature, dim=-1)
            chosen[i] = torch.multinomial(q.nan_to_num(1.0), 1, generator=ask.generator)[0]
            drawn[i] = q
    return chosen, drawn


def by_ask(steps: Sequence[dict[int, Tensor]], asks: int) -> list[Tensor | None]:
    """Each ask's distributions stacked over steps, `[steps, c]`; None where it was greedy."""
    sampled = steps[0] if steps else {}
    return [torch.stack([s[i] for s in steps]) if i in sampled else None for i in range(asks)]
