"""A target that is nothing but a random embedding, a random head and random taps."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from tests.engines.native.drafters.synthetic import HIDDEN, TARGET_LAYERS, VOCAB


class FakeTarget:
    """What drafters use of a Target; `tap` makes up hidden states by sequence and position."""

    def __init__(self, dtype: torch.dtype = torch.float32, device: str = "cpu") -> None:
        generator = torch.Generator().manual_seed(11)
        self.vocab_size, self.hidden_size, self.layers = VOCAB, HIDDEN, TARGET_LAYERS
        self.dtype, self.device = dtype, torch.device(device)
        self.table = torch.randn(VOCAB, HIDDEN, generator=generator).to(self.device, dtype)
        head = torch.randn(VOCAB, HIDDEN, generator=generator)
        self.head_weight = head.to(self.device, dtype)

    def embed(self, ids: Tensor) -> Tensor:
        return self.table[ids]

    def head(self, normed: Tensor) -> Tensor:
        return normed @ self.head_weight.T

    def tap(self, sequence: int, positions: Sequence[int], count: int) -> list[Tensor]:
        """`count` taps `[rows, hidden]` of a sequence's positions."""
        rows = []
        for position in positions:
            generator = torch.Generator().manual_seed(1000 * sequence + position)
            rows.append(torch.randn(count, HIDDEN, generator=generator))
        stacked = torch.stack(rows, dim=1).to(self.device, self.dtype)
        return list(stacked.unbind(0))
