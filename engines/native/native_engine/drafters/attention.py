"""What each row of a drafted block sees: the committed context, and its own block."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from native_engine.drafters.context_cache import ContextCache, places


class Sight(NamedTuple):
    """Cache positions `first:end` that any block of the batch sees; `mask`, true where it does,
    `[n, 1, group * block, keys]`; None where every row sees all of them."""

    first: int
    end: int
    mask: Tensor | None


class BlockRows:
    """Blocks of `size` rows, one a sequence: the rows of `slots` at positions `starts ..`; `group`
    query heads share a KV head."""

    def __init__(
        self,
        slots: Sequence[int],
        starts: Sequence[int],
        size: int,
        group: int,
        device: torch.device,
    ) -> None:
        self.slots = tuple(slots)
        self.size, self._group = size, group
        self._starts, self._device = tuple(starts), device
        self.places = places(slots, starts, [size] * len(self.slots), device)
        self._sights: dict[tuple[int | None, bool], Sight] = {}

    def sight(self, window: int | None, causal: bool) -> Sight:
        """What rows of a layer see: the block (`causal`: no later row of it) and the context,
        nothing `window` positions away or more."""
        if (window, causal) not in self._sights:
            self._sights[window, causal] = self._sight(window, causal)
        return self._sights[window, causal]

    def _sight(self, window: int | None, causal: bool) -> Sight:
        first = 0 if window is None else max(0, min(self._starts) - window + 1)
        end = max(self._starts) + self.size
        alike = len(set(self._starts)) == 1
        if alike and not causal and (window is None or end - first <= window):
            return Sight(first, end, None)
        begins = torch.tensor(self._starts, device=self._device).view(-1, 1, 1)
        queries = begins + torch.arange(self.size, device=self._device).view(1, -1, 1)
        keys = torch.arange(first, end, device=self._device)
        mask = keys < begins + self.size
        if causal:
            mask = mask & (keys <= queries)
        if window is not None:
            mask = mask & ((keys - queries).abs() < window)
        mask = mask.expand(-1, self.size, -1).repeat(1, self._group, 1)
        return Sight(first, end, mask.unsqueeze(1))

    def attend(self, q: Tensor, cache: ContextCache, layer: int, sight: Sight) -> Tensor:
        """Attention of `q` `[rows, heads, head_dim]`: `[rows, heads * head_dim]`. Query heads that
        share a KV head are rows of one, so that keys are read once a group."""
        keys, values = cache.read(layer, self.slots, sight.first, sight.end)
        n, kv_heads, _, head_dim = keys.shape
        split = (n, self.size, kv_heads, self._group, head_dim)
        packed = q.view(split).permute(0, 2, 3, 1, 4).reshape(n, kv_heads, -1, head_dim)
        out = F.scaled_dot_product_attention(packed, keys, values, attn_mask=sight.mask)
        out = out.view(n, kv_heads, self._group, self.size, head_dim).permute(0, 3, 1, 2, 4)
        return out.reshape(n * self.size, -1)
