"""A drafter that fills a block of masked slots in one pass: what DFlash and DSpark share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from native_engine.drafters.attention import BlockRows
from native_engine.drafters.backbone import Backbone
from native_engine.drafters.context_cache import ContextCache, places
from native_engine.drafters.options import DrafterOptions
from native_engine.drafters.protocol import Ask, Proposal
from native_engine.errors import ConfigError
from native_engine.targets.protocol import Rows

Lookup = Callable[[Tensor], Tensor]


class BlockDrafter(ABC):
    """Implements BatchDrafter. The whole block is always run, as it was trained; slots beyond an
    ask's limit are neither put through the head nor sampled.

    embed: `[n]` ids to `[n, hidden]`. head: `[n, hidden]` to `[n, vocab]`, unscaled."""

    def __init__(
        self, backbone: Backbone, embed: Lookup, head: Lookup, options: DrafterOptions
    ) -> None:
        self.config = backbone.config
        if options.draft_tokens > self.config.max_drafts:
            raise ConfigError(
                f"drafter draft_tokens={options.draft_tokens}: a block of "
                f"{self.config.block_size} drafts at most {self.config.max_drafts}"
            )
        self.taps = self.config.taps
        self.draft_tokens = options.draft_tokens or self.config.max_drafts
        self._backbone, self._embed, self._head = backbone, embed, head
        self._normed_embeddings = options.normed_embeddings
        self._cache: ContextCache | None = None

    def open(self, slots: int, capacity: int) -> None:
        self._cache = self._backbone.new_cache(slots, capacity)

    @torch.inference_mode()
    def reset(self, slot: int, held: int = 0) -> None:
        self._context.keep(slot, held)

    @torch.inference_mode()
    def observe(self, rows: Rows, taps: Sequence[Tensor]) -> None:
        """Commit the target's taps of `rows`. A slot may step back (rows from an earlier start
        replace what followed), never skip; ValueError names the slot that does."""
        lengths = self._context.lengths
        for slot, start in zip(rows.slots, rows.starts, strict=True):
            if start > lengths[slot]:
                raise ValueError(f"slot {slot}: rows from {start} follow {lengths[slot]} observed")
        at = places(rows.slots, rows.starts, rows.counts, self._backbone.device)
        self._backbone.append(self._backbone.fuse(taps), at, self._context)
        for span in rows.spans:
            lengths[span.slot] = span.start + span.end - span.begin

    @torch.inference_mode()
    def propose(self, asks: Sequence[Ask]) -> Proposal:
        asking = [ask for ask in asks if self.limit(ask)]
        proposal = Proposal([[] for _ in asks], [None for _ in asks])
        if not asking:
            return proposal
        first = 0 if self.config.anchor_predicts else 1
        slots = self.hidden(asking)[:, first : first + max(map(self.limit, asking))]
        found = self._draft(slots, self._anchors(asking), asking, len(asks) - len(asking))
        drafted = iter(zip(found.tokens, found.q, strict=True))
        for i, limit in enumerate(map(self.limit, asks)):
            if limit:
                tokens, q = next(drafted)
                proposal.tokens[i] = tokens[:limit]
                proposal.q[i] = None if q is None else q[: len(proposal.tokens[i])]
        return proposal

    def limit(self, ask: Ask) -> int:
        """Tokens drafted for `ask` at most."""
        return max(0, min(ask.limit, self.draft_tokens))

    def hidden(self, asks: Sequence[Ask]) -> Tensor:
        """Final normed hidden states of each ask's block, `[n, block, hidden]`."""
        size = self.config.block_size
        starts = [len(ask.context_ids) - 1 for ask in asks]
        for ask, start in zip(asks, starts, strict=True):
            held = self._context.lengths[ask.slot]
            if start != held:
                raise ValueError(f"slot {ask.slot}: anchor at {start}, {held} rows observed")
        anchors = self._anchors(asks)
        ids = torch.full((len(asks), size), self.config.mask_token_id, device=anchors.device)
        ids[:, 0] = anchors
        x = self._embed(ids.flatten()).to(self._backbone.dtype)
        if self._normed_embeddings:
            x = F.rms_norm(x, (x.shape[-1],), None, self.config.rms_norm_eps)
        group = self.config.heads // self.config.kv_heads
        rows = BlockRows([ask.slot for ask in asks], starts, size, group, anchors.device)
        return self._backbone.block(x, rows, self._context).view(len(asks), size, -1)

    def unary(self, hidden: Tensor) -> Tensor:
        """FP32 logits `[n, slots, vocab]` of normed hidden states, multiplied and capped as the
        config says: before any selection, which adds to them."""
        logits = self._head(hidden.flatten(0, 1)).float()
        if self.config.logit_multiplier != 1.0:
            logits.mul_(self.config.logit_multiplier)
        cap = self.config.logit_softcap
        if cap is not None:
            logits.div_(cap).tanh_().mul_(cap)
        return logits.view(*hidden.shape[:2], -1)

    @abstractmethod
    def _draft(self, hidden: Tensor, anchors: Tensor, asks: Sequence[Ask], idle: int) -> Proposal:
        """Tokens (and q) of drafting slots `[n, slots, hidden]` after `anchors` `[n]`; `idle`
        sequences of the batch want no draft."""

    @property
    def _context(self) -> ContextCache:
        if self._cache is None:
            raise ValueError("the drafter was given no room: call open(slots, capacity) first")
        return self._cache

    def _anchors(self, asks: Sequence[Ask]) -> Tensor:
        return torch.tensor([ask.context_ids[-1] for ask in asks], device=self._backbone.device)
