"""DSpark (arXiv 2607.05147): the anchor's slot drafts too, a Markov head corrects left to right,
confidences say how much of each draft to verify."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from native_engine.drafters.backbone import Backbone
from native_engine.drafters.block_drafter import BlockDrafter, Lookup
from native_engine.drafters.confidence import ConfidenceHead
from native_engine.drafters.markov import MarkovHead
from native_engine.drafters.options import DrafterOptions
from native_engine.drafters.protocol import Ask, Proposal
from native_engine.drafters.sampling import by_ask, choose
from native_engine.drafters.scheduler import make_schedule
from native_engine.errors import ConfigError


class DSparkDrafter(BlockDrafter):
    """With a schedule, `propose` returns drafts cut to the lengths worth verifying: one decision
    over all asks of the call."""

    def __init__(
        self,
        backbone: Backbone,
        embed: Lookup,
        head: Lookup,
        options: DrafterOptions,
        markov: MarkovHead | None,
        confidence: ConfidenceHead | None,
    ) -> None:
        super().__init__(backbone, embed, head, options)
        self._markov, self._confidence = markov, confidence
        self._schedule = make_schedule(options)
        if self._schedule is not None and confidence is None:
            raise ConfigError(
                f"drafter schedule={options.schedule!r}: this drafter has no confidence head; "
                "only 'none' can be used"
            )

    def _draft(self, hidden: Tensor, anchors: Tensor, asks: Sequence[Ask], idle: int) -> Proposal:
        unary, previous = self.unary(hidden), anchors
        state = None if self._markov is None else self._markov.start(anchors)
        embedded: Tensor | None = None
        tokens, distributions, confidences = [], [], []
        for k in range(hidden.shape[1]):
            scores = unary[:, k]
            if self._markov is not None and state is not None:
                embedded = self._markov.embed(previous)
                bias, state = self._markov.step(embedded, hidden[:, k], state)
                scores = scores + bias
            if self._schedule is not None and self._confidence is not None:
                confidences.append(self._confidence(k, hidden[:, k], embedded))
            previous, drawn = choose(scores, asks)
            tokens.append(previous)
            distributions.append(drawn)
        drafts = torch.stack(tokens, dim=1).tolist()
        if self._schedule is not None and confidences:
            columns = torch.stack(confidences, dim=1).tolist()
            known = [c[: self.limit(ask)] for c, ask in zip(columns, asks, strict=True)]
            lengths = self._schedule(known + [[]] * idle)
            drafts = [draft[:kept] for draft, kept in zip(drafts, lengths, strict=False)]
        return Proposal(drafts, by_ask(distributions, len(asks)))
