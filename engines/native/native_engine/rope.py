"""Rotary position embedding, NeoX style: the two halves of a head rotate against each other."""

from __future__ import annotations

import torch
from torch import Tensor

from native_engine.config import ModelConfig
from native_engine.targets.rotary import Rotary


class RopeTable:
    """cos and signed sin for every position, in the model's dtype: `[positions, 1, head_dim]`."""

    def __init__(self, config: ModelConfig, positions: int, dtype: torch.dtype) -> None:
        rotary = Rotary(config.head_dim, config.rope_theta, torch.device("cpu"), dtype)
        self.cos, self.sin = rotary.at(torch.arange(positions))

    def rows(self, start: int, rows: int) -> tuple[Tensor, Tensor]:
        """cos, sin of positions `start .. start + rows`: `[rows, 1, head_dim]` each."""
        return self.cos[start : start + rows], self.sin[start : start + rows]


def rotate_(heads: Tensor, cos: Tensor, sin: Tensor) -> None:
    """Rotate `[rows, heads, head_dim]` in place (a view of the qkv output)."""
    rotate_into(heads, heads, cos, sin)


def rotate_into(out: Tensor, heads: Tensor, cos: Tensor, sin: Tensor) -> None:
    """RoPE of `[.., head_dim]` by cos and signed sin."""
    torch.addcmul(heads * cos, heads.roll(heads.shape[-1] // 2, -1), sin, out=out)
