"""Rotary position embedding, NeoX style: the two halves of a head rotate against each other."""

from __future__ import annotations

import torch
from torch import Tensor

from native_engine.config import ModelConfig


class RopeTable:
    """cos and signed sin for every position, in the model's dtype: `[positions, 1, head_dim]`."""

    def __init__(self, config: ModelConfig, positions: int, dtype: torch.dtype) -> None:
        half = torch.arange(0, config.head_dim, 2, dtype=torch.int64).float() / config.head_dim
        angles = torch.outer(torch.arange(positions).float(), 1.0 / config.rope_theta**half)
        cos, sin = angles.cos(), angles.sin()
        self.cos = torch.cat((cos, cos), dim=-1).to(dtype).unsqueeze(1)
        # The sign of rotate_half lives in the table, so that a roll does the rest.
        self.sin = torch.cat((-sin, sin), dim=-1).to(dtype).unsqueeze(1)

    def rows(self, start: int, rows: int) -> tuple[Tensor, Tensor]:
        """cos, sin of positions `start .. start + rows`: `[rows, 1, head_dim]` each."""
        return self.cos[start : start + rows], self.sin[start : start + rows]


def rotate_(heads: Tensor, cos: Tensor, sin: Tensor) -> None:
    """Rotate `[rows, heads, head_dim]` in place (a view of the qkv output)."""
    swapped = heads.roll(heads.shape[-1] // 2, -1)
    torch.addcmul(heads * cos, swapped, sin, out=heads)
