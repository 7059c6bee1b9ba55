"""Rotary position embedding (Su et al., arXiv 2104.09864) at ragged positions, NeoX style."""

from __future__ import annotations

import torch
from torch import Tensor


class Rotary:
    """Angles of `dims` rotated dimensions; `native_engine.rope.rotate_` applies them."""

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
