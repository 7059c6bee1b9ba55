"""Causal masks for rows that follow a cached prefix."""

from __future__ import annotations

import torch
from torch import Tensor

from native_engine.targets.attention import CausalMasks


class MaskCache:
    """`CausalMasks` of one sequence of at most `max_tokens` tokens."""

    def __init__(self, group: int, max_tokens: int, dtype: torch.dtype) -> None:
        self._masks = CausalMasks(group, dtype, torch.device("cpu"), max_tokens)

    def get(self, start: int, rows: int) -> Tensor | None:
        """Mask for `rows` rows at positions `start ..` over `start + rows` keys: None for one row
        (it sees everything), `[group * rows, keys]` up to 32 rows, `[rows, keys]` above."""
        return self._masks.get(rows, start, None)
