"""A static key/value cache for one sequence."""

from __future__ import annotations

import torch
from torch import Tensor

from native_engine.config import ModelConfig


class KVCache:
    """`[layers, 1, 2 * kv_heads, capacity, head_dim]`, keys before values; `length` valid."""

    def __init__(self, config: ModelConfig, capacity: int, dtype: torch.dtype) -> None:
        self.kv_heads = config.kv_heads
        self.capacity = capacity
        self.length = 0
        shape = (config.layers, 1, 2 * config.kv_heads, capacity, config.head_dim)
        self.data = torch.zeros(shape, dtype=dtype)

    def extend(
        self, rows: int
    ) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...], tuple[Tensor, ...]]:
        """Make room for `rows` tokens; per-layer views (keys, values, slot).

        keys, values: `[1, kv_heads, length + rows, head_dim]`; slot, where the new rows go:
        `[rows, 2 * kv_heads, head_dim]`."""
        start, end = self.length, self.length + rows
        if end > self.capacity:
            raise ValueError(f"KV cache holds {self.capacity} tokens, {end} asked for")
        self.length = end
        valid = self.data[:, :, :, :end]
        keys, values = valid[:, :, : self.kv_heads], valid[:, :, self.kv_heads :]
        slot = self.data[:, 0, :, start:end].transpose(1, 2)
        return keys.unbind(0), values.unbind(0), slot.unbind(0)

    def truncate(self, length: int) -> None:
        """Forget every token from position `length` on (rejected draft rows)."""
        self.length = min(self.length, length)
