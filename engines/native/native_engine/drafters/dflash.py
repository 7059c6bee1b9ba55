"""DFlash (arXiv 2602.06036), slots chosen on their own, and DFlash2, chosen by the selector."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from native_engine.drafters.backbone import Backbone
from native_engine.drafters.block_drafter import BlockDrafter, Lookup
from native_engine.drafters.options import DrafterOptions
from native_engine.drafters.protocol import Ask, Proposal
from native_engine.drafters.sampling import by_ask, choose
from native_engine.drafters.selector import CandidateSelector


class DFlashDrafter(BlockDrafter):
    """The anchor's slot predicts nothing: block - 1 drafts."""

    def __init__(
        self,
        backbone: Backbone,
        embed: Lookup,
        head: Lookup,
        options: DrafterOptions,
        selector: CandidateSelector | None,
    ) -> None:
        super().__init__(backbone, embed, head, options)
        self._selector = selector

    def _draft(self, hidden: Tensor, anchors: Tensor, asks: Sequence[Ask], idle: int) -> Proposal:
        unary = self.unary(hidden)
        if self._selector is not None:
            return self._selector.select(unary, hidden, anchors, asks)
        picked = [choose(unary[:, t], asks) for t in range(unary.shape[1])]
        tokens = torch.stack([column for column, _ in picked], dim=1)
        return Proposal(tokens.tolist(), by_ask([drawn for _, drawn in picked], len(asks)))
