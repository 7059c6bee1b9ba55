"""What a parallel drafter is to the batch decoder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from native_engine.targets.protocol import Rows


@dataclass(frozen=True)
class Proposal:
    """tokens: each sequence's draft (ragged; may be empty). q: each sequence's FP32 `[k, vocab]`
    distribution the draft was sampled from, None where it was chosen greedily."""

    tokens: list[list[int]]
    q: list[Tensor | None]


@dataclass(frozen=True)
class Ask:
    """One sequence that wants a draft after `context_ids` (its last is the anchor, whose target
    hidden state does not exist yet), at most `limit` tokens; temperature 0 is greedy."""

    slot: int
    context_ids: Sequence[int]
    limit: int
    temperature: float = 0.0
    generator: torch.Generator | None = None


class BatchDrafter(Protocol):
    """Guesses for many sequences at once; a wrong guess costs time, never correctness."""

    taps: tuple[int, ...]
    """Target layers whose outputs `observe` wants, in this order."""
    draft_tokens: int

    def open(self, slots: int, capacity: int) -> None:
        """Make room for `slots` sequences of at most `capacity` tokens."""

    def reset(self, slot: int, held: int = 0) -> None:
        """A new request begins in `slot`; its first `held` tokens were observed there before."""

    def observe(self, rows: Rows, taps: Sequence[Tensor]) -> None:
        """Committed rows (prompt, or accepted draft) and the target's taps for them, each
        `[total, hidden]`; `rows.starts` continues what was observed of each slot before."""

    def propose(self, asks: Sequence[Ask]) -> Proposal:
        """A draft for each ask, in that order."""
