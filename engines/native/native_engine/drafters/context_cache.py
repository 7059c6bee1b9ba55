"""Keys and values of committed rows, by slot: append only, as a rejected draft never enters it."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from native_engine.drafters.config import DrafterConfig


class ContextCache:
    """`[slots, capacity, 2, kv_heads, head_dim]` a layer; `lengths` committed rows by slot.

    Rows behind a slot's length are scratch: a block writes its own keys and values there and they
    are overwritten by the next."""

    def __init__(
        self,
        config: DrafterConfig,
        slots: int,
        capacity: int,
        device: torch.device,
        dtype: torch.dtype,
    ) -> None:
        self.capacity = capacity
        self.lengths = [0] * slots
        shape = (slots, capacity, 2, config.kv_heads, config.head_dim)
        self._layers = [
            torch.zeros(shape, dtype=dtype, device=device) for _ in range(config.layers)
        ]

    def keep(self, slot: int, length: int) -> None:
        """`slot` holds its first `length` rows. What an earlier request left behind them is never
        attended to, but NaN times a weight of zero is NaN: it goes."""
        self.lengths[slot] = length
        for layer in self._layers:
            layer[slot, length:].zero_()

    def write(self, layer: int, slots: Tensor, positions: Tensor, kv: Tensor) -> None:
        """Put `kv` `[rows, 2, kv_heads, head_dim]` at each row's slot and position, `[rows]`."""
        self._layers[layer][slots, positions] = kv

    def read(self, layer: int, slots: Sequence[int], first: int, end: int) -> tuple[Tensor, Tensor]:
        """Keys and values at positions `first:end` of `slots`: `[n, kv_heads, end - first,
        head_dim]` each, a view where the slots are neighbours."""
        data = self._layers[layer]
        if list(slots) == list(range(slots[0], slots[0] + len(slots))):
            chosen = data[slots[0] : slots[0] + len(slots), first:end]
        else:
            chosen = data[:, first:end].index_select(0, torch.tensor(slots, device=data.device))
        keys, values = chosen.transpose(1, 3).unbind(2)
        return keys, values
