"""A drafter of one sequence (`native_engine.drafter`: prompt lookup) for many: one each slot."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import Tensor

from native_engine.drafter import Drafter
from native_engine.drafters.protocol import Ask, Proposal
from native_engine.targets.protocol import Rows


class PerSlotDrafter:
    """BatchDrafter of independent single-sequence drafters, which learn from the text alone."""

    taps: tuple[int, ...] = ()

    def __init__(self, make: Callable[[], Drafter], draft_tokens: int) -> None:
        self.draft_tokens = draft_tokens
        self._make = make
        self._slots: list[Drafter] = []

    def open(self, slots: int, capacity: int) -> None:
        self._slots = [self._make() for _ in range(slots)]

    def reset(self, slot: int, held: int = 0) -> None:
        self._slots[slot].reset()

    def observe(self, rows: Rows, taps: Sequence[Tensor]) -> None:
        """Nothing to learn: `propose` sees the text."""

    def propose(self, asks: Sequence[Ask]) -> Proposal:
        drafts = [self._slots[ask.slot].propose(ask.context_ids)[: ask.limit] for ask in asks]
        return Proposal(drafts, [None] * len(asks))
