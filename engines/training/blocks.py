"""Blocks to draft: anchors sampled in the answers, what fills a block, what it should say."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from engines.training.corpus import Batch


class Blocks(NamedTuple):
    """Of `[n, blocks]` anchors, each with `slots` drafting rows.

    anchors: positions. ids `[n, blocks, size]`: the anchor's token, then masks. labels, previous
    `[n, blocks, slots]`: the answer's own token of each slot, and the one before it. valid, of the
    same shape: whether the answer goes that far (and the block is no duplicate)."""

    anchors: Tensor
    ids: Tensor
    labels: Tensor
    previous: Tensor
    valid: Tensor


def sample_anchors(
    batch: Batch, count: int, generator: torch.Generator | None
) -> tuple[Tensor, Tensor]:
    """`count` positions a sequence, evenly spread with a random offset each, among the answer's
    tokens that have a successor; and whether each is its sequence's first of that position (an
    answer may have fewer than `count`). `[n, count]` each."""
    device = batch.tokens.device
    room = (batch.lengths - 1 - batch.prompt_lengths).clamp(min=1)
    u = torch.rand(len(room), count, generator=generator, device=device)
    stratum = torch.arange(count, device=device) + u
    at = (stratum * room[:, None] / count).long().minimum(room[:, None] - 1)
    fresh = torch.ones_like(at, dtype=torch.bool)
    fresh[:, 1:] = at[:, 1:] != at[:, :-1]
    return batch.prompt_lengths[:, None] + at, fresh


def make_blocks(
    batch: Batch, anchors: Tensor, fresh: Tensor, size: int, slots: int, mask_token: int
) -> Blocks:
    """The blocks anchored at `anchors` `[n, blocks]`."""
    tokens, rows = batch.tokens, torch.arange(len(anchors), device=anchors.device)[:, None, None]
    ids = torch.full((*anchors.shape, size), mask_token, device=anchors.device)
    ids[..., 0] = tokens.gather(1, anchors)
    following = anchors[..., None] + 1 + torch.arange(slots, device=anchors.device)
    inside = following < batch.lengths[:, None, None]
    at = following.clamp(max=tokens.shape[1] - 1)
    labels = tokens[rows, at]
    previous = tokens[rows, at - 1]
    return Blocks(anchors, ids, labels, previous, inside & fresh[..., None])
