"""Keys and values of committed rows, by slot: append only, as a rejected draft never enters it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from native_engine.drafters.config import DrafterConfig
from native_engine.drafters.rope import rotary

Angles = tuple[Tensor, Tensor]


class Run(NamedTuple):
    """Rows at positions `start:end` of one slot: written as a slice."""

    slot: int
    start: int
    end: int


class Scattered(NamedTuple):
    """Rows anywhere: the slot and the position of each, `[rows]`."""

    slots: Tensor
    positions: Tensor


Places = Run | Scattered


def places(
    slots: Sequence[int], starts: Sequence[int], counts: Sequence[int], device: torch.device
) -> Places:
    """Where `counts` rows from `starts` of `slots` go, one sequence after the other."""
    if len(slots) == 1:
        return Run(slots[0], starts[0], starts[0] + counts[0])
    runs = [torch.arange(s, s + n) for s, n in zip(starts, counts, strict=True)]
    of_row = torch.tensor(slots).repeat_interleave(torch.tensor(counts))
    return Scattered(of_row.to(device), torch.cat(runs).to(device))


class ContextCache:
    """`data` `[layers, slots, 2, kv_heads, capacity, head_dim]`, keys before values: a head's rows
    lie together; `lengths` committed rows by slot.

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
        self.device = device
        self.lengths = [0] * slots
        shape = (config.layers, slots, 2, config.kv_heads, capacity, config.head_dim)
        self.data = torch.zeros(shape, dtype=dtype, device=device)
        self._angles = rotary(config, device, dtype).at(torch.arange(capacity, device=device))

    def keep(self, slot: int, length: int) -> None:
        """`slot` holds its first `length` rows. What an earlier request left behind them is never
        attended to, but NaN times a weight of zero is NaN: it goes."""
        self.lengths[slot] = length
        self.data[:, slot, :, :, length:].zero_()

    def angles(self, at: Places) -> Angles:
        """cos and signed sin of rows' positions, `[rows, 1, head_dim]` each."""
        cos, sin = self._angles
        if isinstance(at, Run):
            return cos[at.start : at.end], sin[at.start : at.end]
        return cos[at.positions], sin[at.positions]

    def write(self, layer: int, at: Places, kv: Tensor) -> None:
        """Put a layer's `kv` `[rows, 2, kv_heads, head_dim]` at each row's place."""
        if isinstance(at, Run):
            self.data[layer, at.slot, :, :, at.start : at.end] = kv.permute(1, 2, 0, 3)
        else:
            self.data[layer][at.slots, :, :, at.positions] = kv

    def write_all(self, at: Places, kv: Tensor) -> None:
        """`kv` of every layer, `[rows, layers, 2, kv_heads, head_dim]`."""
        if isinstance(at, Run):
            self.data[:, at.slot, :, :, at.start : at.end] = kv.permute(1, 2, 3, 0, 4)
        else:
            self.data[:, at.slots, :, :, at.positions] = kv

    def read(self, layer: int, slots: Sequence[int], first: int, end: int) -> tuple[Tensor, Tensor]:
        """Keys and values at positions `first:end` of `slots`: `[n, kv_heads, end - first,
        head_dim]` each, a view where the slots are neighbours."""
        data = self.data[layer]
        if list(slots) == list(range(slots[0], slots[0] + len(slots))):
            chosen = data[slots[0] : slots[0] + len(slots), :, :, first:end]
        else:
            wanted = torch.tensor(slots, device=self.device)
            chosen = data[:, :, :, first:end].index_select(0, wanted)
        return chosen[:, 0], chosen[:, 1]
