"""Rotary position embedding (Su et al., arXiv 2104.09864), NeoX style: the two halves of a head
rotate against each other."""

from __future__ import annotations

import torch
from torch import Tensor

from native_engine.config import ModelConfig


class Rotary:
    """Angles of `dims` rotated dimensions; `rotate_` applies them."""

    def __init__(self, dims: int, theta: float, device: torch.device, dtype: torch.dtype) -> None:
        half = torch.arange(0, dims, 2, dtype=torch.int64).float() / dims
        self._frequencies = (1.0 / theta**half).to(device)
        self._dtype = dtype

    def at(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """cos and signed sin of `[total]` positions, `[total, 1, dims]` each."""
        angles = torch.outer(positions.float(), self._frequencies)
        cos, sin = angles.cos(), angles.sin()
        # The sign of rotate_half lives in the sine, so that a roll does the rest.
        cos, sin = torch.cat((cos, cos), dim=-1), torch.cat((-sin, sin), dim=-1)
        return cos.to(self._dtype).unsqueeze(1), sin.to(self._dtype).unsqueeze(1)


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
