"""A slotted key/value cache: one contiguous run of tokens for each of many sequences."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from native_engine.errors import StateError
from native_engine.targets.protocol import Rows


class Places(NamedTuple):
    """Where the rows of a forward pass go, `[total]` each."""

    slots: Tensor
    positions: Tensor


class KvSlots:
    """`data` `[layers, slots, 2 * kv_heads, capacity, head_dim]`, keys before values: a head's
    tokens lie together, since a decode step reads whole heads.

    A forward pass asks `begin` for room, `write`s each layer, and `commit` decides what stays.
    Rewinding costs nothing: rows after the committed length are overwritten by the next."""

    rewinds = True

    def __init__(
        self,
        layers: int,
        slots: int,
        capacity: int,
        kv_heads: int,
        head_dim: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        self.kv_heads, self.head_dim, self.capacity = kv_heads, head_dim, capacity
        shape = (layers, slots, 2 * kv_heads, capacity, head_dim)
        self.data = torch.zeros(shape, dtype=dtype, device=device)
        self._committed = [0] * slots
        self._written = [0] * slots

    def length(self, slot: int) -> int:
        """Committed tokens of `slot`."""
        self._check_slot(slot)
        return self._committed[slot]

    def commit(self, slot: int, length: int) -> None:
        """The sequence in `slot` is its first `length` tokens. StateError if it has fewer."""
        self._check_slot(slot)
        if not 0 <= length <= self._written[slot]:
            written = self._written[slot]
            raise StateError(slot, f"cannot commit {length} tokens, {written} are written")
        self._committed[slot] = self._written[slot] = length

    def reset(self, slot: int) -> None:
        self.commit(slot, 0)

    def begin(self, rows: Rows) -> Places:
        """Make room for `rows`.

        StateError when a row does not continue its slot's committed tokens or does not fit; then
        nothing is changed."""
        if len(set(rows.slots)) < len(rows.slots):
            raise StateError(max(rows.slots, key=rows.slots.count), "one sequence a slot")
        for slot, start, begin, end in rows.spans:
            held, asked = self.length(slot), start + end - begin
            if start != held:
                text = f"holds {held} committed tokens, rows start at {start}"
                raise StateError(slot, f"{text}: commit or reset it first")
            if asked <= start or asked > self.capacity:
                raise StateError(slot, f"holds {self.capacity} tokens, {asked} asked for")
        for slot, start, begin, end in rows.spans:
            self._written[slot] = start + end - begin
        slots = torch.tensor(rows.slots).repeat_interleave(torch.tensor(rows.counts))
        return Places(slots.to(self.data.device), rows.positions.to(self.data.device))

    def write(self, layer: int, places: Places, heads: Tensor) -> None:
        """Keys and values of the rows, `[total, 2 * kv_heads, head_dim]`, to their places."""
        self.data[layer][places.slots, :, places.positions] = heads

    def views(self, slot: int, low: int, high: int) -> list[tuple[Tensor, Tensor]]:
        """Keys and values of tokens `low:high` of `slot`, for each layer, each
        `[1, kv_heads, high - low, head_dim]`."""
        run = self.data[:, slot : slot + 1, :, low:high]
        keys, values = run[:, :, : self.kv_heads], run[:, :, self.kv_heads :]
        return list(zip(keys.unbind(0), values.unbind(0), strict=True))

    def _check_slot(self, slot: int) -> None:
        if not 0 <= slot < len(self._committed):
            raise StateError(slot, f"there are slots 0 to {len(self._committed) - 1}")
