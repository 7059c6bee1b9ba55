"""What of the logits leaves the engine: log-probabilities and raw top-k, in SGLang's shapes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

Scored = tuple[float | None, int, None]
RawScored = tuple[float, int]
_BLOCK = 128


@dataclass
class Recorder:
    """Collects one entry per row of logits. `top` and `raw_top` are how many candidates a row.

    `tokens`: [logprob, id, null] of the token that follows; `tops`: the likeliest candidates;
    `raw_tops`: [logit, id] as the engine computed them; `raw_tokens`: that token's own logit."""

    top: int
    raw_top: int
    tokens: list[Scored] = field(default_factory=list)
    tops: list[list[Scored] | None] = field(default_factory=list)
    raw_tops: list[list[RawScored] | None] = field(default_factory=list)
    raw_tokens: list[RawScored | None] = field(default_factory=list)

    def open(self, first_id: int) -> None:
        """The first input token asked for has no prediction: null entries, as SGLang gives."""
        self.tokens.append((None, first_id, None))
        self.tops.append(None)
        self.raw_tops.append(None)
        self.raw_tokens.append(None)

    def add(self, logits: Tensor, followers: Sequence[int]) -> None:
        """`logits` `[rows, vocab]`; `followers`, the token after each row."""
        values = logits.float()
        # One fused pass on CPU, where logsumexp is five operators.
        scores = values.log_softmax(dim=-1)
        column = torch.tensor(followers, device=values.device)[:, None]
        own = scores.gather(1, column)[:, 0].tolist()
        self.tokens.extend((s, i, None) for s, i in zip(own, followers, strict=True))
        if self.raw_top:
            raw = values.gather(1, column)[:, 0].tolist()
            self.raw_tokens.extend(zip(raw, followers, strict=True))
        if not (self.top or self.raw_top):
            return
        # The search over the vocabulary costs most: once for both lists, whose order is the same.
        best, ids = _top(values, max(self.top, self.raw_top))
        named = ids.tolist()
        if self.top:
            for row, of_row in zip(scores.gather(1, ids).tolist(), named, strict=True):
                pairs = list(zip(row, of_row, strict=True))[: self.top]
                self.tops.append([(s, i, None) for s, i in pairs])
        if self.raw_top:
            for row, of_row in zip(best.tolist(), named, strict=True):
                self.raw_tops.append(list(zip(row, of_row, strict=True))[: self.raw_top])


def _top(values: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The `count` largest of each row and their ids, lowest id first at ties (topk promises no
    order)."""
    spare = min(count + 16, values.shape[-1])
    ids = largest(values, spare).sort(dim=-1).values
    best, order = values.gather(1, ids).sort(dim=-1, descending=True, stable=True)
    return best[:, :count], ids.gather(1, order)[:, :count]


def largest(values: Tensor, count: int) -> Tensor:
    """Ids of the `count` largest of each row, in no order: they lie in the `count` blocks whose own
    largest are largest, so that all but those are read once, for a maximum."""
    rows, vocab = values.shape
    if vocab % _BLOCK or vocab // _BLOCK <= count:
        return values.topk(count, dim=-1).indices
    blocks = values.view(rows, -1, _BLOCK)
    best = blocks.amax(dim=-1).topk(count, dim=-1).indices
    near = blocks.gather(1, best[:, :, None].expand(-1, -1, _BLOCK)).flatten(1)
    at = near.topk(count, dim=-1).indices
    return best.gather(1, at // _BLOCK) * _BLOCK + at % _BLOCK
