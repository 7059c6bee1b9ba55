"""The next token from logits: greedy, or sampled by temperature within a nucleus (top-p)."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

# FP32 logits [rows, vocab] -> ids [rows]
TokenChoice = Callable[[Tensor], Tensor]

_HALVINGS = 10


def greedy(logits: Tensor) -> Tensor:
    return logits.argmax(-1)


def nucleus(temperature: float, top_p: float) -> TokenChoice:
    """Sampling with the device's default random generator."""

    def choose(logits: Tensor) -> Tensor:
        chances = (logits / temperature).softmax(-1)
        kept = torch.where(chances >= nucleus_bound(chances, top_p), chances, 0.0)
        # The largest of p / Exp(1) is a draw from p. A draw of exactly 0 would give 0 / 0.
        return (kept / torch.empty_like(kept).exponential_().clamp_(min=1e-30)).argmax(-1)

    return choose


def nucleus_bound(chances: Tensor, top_p: float) -> Tensor:
    """The least probability kept, `[rows, 1]`: those at or above it sum to at least `top_p`.

    Found by halving the interval, which needs no sort of the vocabulary; it lies at most
    `max / 2**10` below the exact bound.
    """
    low = torch.zeros_like(chances[:, :1])
    high = chances.amax(-1, keepdim=True)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        mass = torch.where(chances >= middle, chances, 0.0).sum(-1, keepdim=True)
        enough = mass >= top_p
        low, high = torch.where(enough, middle, low), torch.where(enough, high, middle)
    return low
