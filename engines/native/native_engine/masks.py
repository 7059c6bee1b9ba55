"""Causal masks for rows that follow a cached prefix."""

from __future__ import annotations

import torch
from torch import Tensor

GROUPED_ROWS_MAX = 32


class MaskCache:
    """Additive masks. Few rows (a verify step): one mask per row count, made once, of which each
    step takes a slice; wide blocks of prefill: made when asked."""

    def __init__(self, group: int, max_tokens: int, dtype: torch.dtype) -> None:
        self._group = group
        self._max_tokens = max_tokens
        self._dtype = dtype
        self._by_rows: dict[int, Tensor] = {}

    def get(self, start: int, rows: int) -> Tensor | None:
        """Mask for `rows` rows at positions `start ..` over `start + rows` keys: None for one row
        (it sees everything), `[group * rows, keys]` up to 32 rows, `[rows, keys]` above."""
        if rows == 1:
            return None
        if rows > GROUPED_ROWS_MAX:
            return self._make(rows, start)
        mask = self._by_rows.get(rows)
        if mask is None:
            mask = self._make(rows, self._max_tokens).repeat(self._group, 1)
            self._by_rows[rows] = mask
        return mask[:, self._max_tokens - start : self._max_tokens + rows]

    def _make(self, rows: int, prefix: int) -> Tensor:
        """Zeros over `prefix` keys, then a causal triangle."""
        blocked = torch.full((rows, rows), float("-inf"), dtype=self._dtype).triu(1)
        return torch.cat((torch.zeros(rows, prefix, dtype=self._dtype), blocked), dim=1)
