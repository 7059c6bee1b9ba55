"""Attention of ragged rows over slotted keys and values, sequence by sequence.

One sequence's result does not depend on the others in the batch. A step prepares the views and
masks once (`RaggedAttention`), each layer then attends with its own window and scale."""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from native_engine.targets.kv_slots import KvSlots
from native_engine.targets.protocol import Rows

PACKED_ROWS_MAX = 32
"""Up to here the query heads that share a KV head become rows of one head, and keys are read once
a group; wider blocks are bound by arithmetic."""
_MASK_ALIGNMENT = 16
_QUERY_BLOCK = 32
"""Queries that CUDA's memory-efficient kernel takes at a time, or half of them."""


class CausalMasks:
    """Additive masks of `rows` rows after a prefix, in the model's dtype.

    Few rows (a verify step) have one mask per row count and window, of which each step takes a
    slice: what a row sees depends only on how far back a key lies. `longest`: tokens for which such
    a mask is made at first."""

    def __init__(
        self, group: int, dtype: torch.dtype, device: torch.device, longest: int = 256
    ) -> None:
        self._group, self._dtype, self._device, self._longest = group, dtype, device, longest
        self._made: dict[tuple[int, int | None], Tensor] = {}

    def get(self, rows: int, prefix: int, window: int | None) -> Tensor | None:
        """None where the rows see every key; else `[group * rows, prefix + rows]` up to
        PACKED_ROWS_MAX rows, `[rows, prefix + rows]` above. A windowed prefix is at most
        `window - 1` long."""
        if rows == 1:
            return None
        if rows > PACKED_ROWS_MAX:
            return self._aligned(self._make(rows, prefix, window))
        mask = self._made.get((rows, window))
        if mask is None or mask.shape[1] < prefix + rows:
            longest = max(2 * prefix, self._longest) if window is None else window - 1
            mask = self._make(rows, longest, window).repeat(self._group, 1)
            self._made[rows, window] = mask
        return self._aligned(mask[:, mask.shape[1] - prefix - rows :])

    def _make(self, rows: int, prefix: int, window: int | None) -> Tensor:
        blocked = torch.full((rows, prefix + rows), float("-inf"), device=self._device)
        blocked = blocked.triu(prefix + 1)
        if window is not None:
            old = torch.ones_like(blocked, dtype=torch.bool).tril(prefix - window)
            blocked.masked_fill_(old, float("-inf"))
        return blocked.to(self._dtype)

    def _aligned(self, mask: Tensor) -> Tensor:
        """CUDA's kernels read masks in aligned pieces."""
        if mask.device.type == "cpu":
            return mask
        keys = mask.shape[1]
        return F.pad(mask, (0, -keys % _MASK_ALIGNMENT))[:, :keys]


class _Part(NamedTuple):
    """One sequence's rows of the batch and what they attend to, for each layer."""

    begin: int
    end: int
    layers: list[tuple[Tensor, Tensor]]
    mask: Tensor | None


class RaggedAttention:
    """One forward pass's attention: `attend(layer, q, kv, window=..)` once a layer."""

    def __init__(self, rows: Rows, cache: KvSlots, masks: CausalMasks) -> None:
        """Raises StateError when `rows` do not continue the cache's slots, or do not fit."""
        self._rows, self._cache, self._masks = rows, cache, masks
        self._places = cache.begin(rows)
        self._parts: dict[int | None, list[_Part]] = {}

    def __call__(
        self,
        layer: int,
        q: Tensor,
        kv: Tensor,
        *,
        window: int | None = None,
        scale: float | None = None,
    ) -> Tensor:
        """Store `kv` `[total, 2 * kv_heads, head_dim]`, attend with `q` `[total, heads * head_dim]`
        (a view of a wider matrix will do): `[total, heads * head_dim]`.

        window: tokens a row sees, itself included; None: all. scale: None is 1/sqrt(head_dim)."""
        self._cache.write(layer, self._places, kv)
        if window not in self._parts:
            self._parts[window] = self._prepare(window)
        mixed = [
            attend_rows(q[part.begin : part.end], *part.layers[layer], part.mask, scale)
            for part in self._parts[window]
        ]
        return mixed[0] if len(mixed) == 1 else torch.cat(mixed)

    def _prepare(self, window: int | None) -> list[_Part]:
        parts = []
        for slot, start, begin, end in self._rows.spans:
            prefix = start if window is None else min(start, window - 1)
            layers = self._cache.views(slot, start - prefix, start + end - begin)
            mask = self._masks.get(end - begin, prefix, window)
            parts.append(_Part(begin, end, layers, mask))
        return parts


def attend_rows(
    q: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, scale: float | None
) -> Tensor:
    """`q` `[rows, heads * head_dim]` over `[1, kv_heads, tokens, head_dim]`; mask as CausalMasks
    gives it."""
    rows, width = q.shape
    kv_heads, head_dim = keys.shape[1], keys.shape[3]
    group = width // (kv_heads * head_dim)
    q = q.view(rows, kv_heads, group, head_dim).permute(1, 2, 0, 3)
    if rows <= PACKED_ROWS_MAX:
        q = q.reshape(1, kv_heads, group * rows, head_dim)
    else:
        tokens = keys.shape[2]
        keys = keys[0, :, None].expand(kv_heads, group, tokens, head_dim)
        values = values[0, :, None].expand(kv_heads, group, tokens, head_dim)
        q, mask = _without_a_last_one(q, mask)
    mixed = F.scaled_dot_product_attention(q, keys, values, attn_mask=mask, scale=scale)
    if rows > PACKED_ROWS_MAX:
        mixed = mixed[:, :, :rows]
    return mixed.view(kv_heads, group, rows, head_dim).permute(2, 0, 1, 3).reshape(rows, width)


def _without_a_last_one(q: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """A row more where the last block of queries would hold one: torch's memory-efficient kernel
    takes it for a call of one query, in which heads that share keys are its queries, and gives
    another head's result (H200, torch 2.11, BF16: rows 65 and 129)."""
    if q.shape[2] % _QUERY_BLOCK != 1 or mask is None:
        return q, mask
    keys = mask.shape[1]
    return F.pad(q, (0, 0, 0, 1)), F.pad(mask, (0, -keys % _MASK_ALIGNMENT, 0, 1))[:, :keys]
