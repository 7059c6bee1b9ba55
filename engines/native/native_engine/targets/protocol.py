"""What a target is to the batch decoder and the drafters: rows in, hidden states and taps out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch
from torch import Tensor


class Span(NamedTuple):
    """One sequence's part of a forward pass: rows `begin:end`, at positions `start ..`."""

    slot: int
    start: int
    begin: int
    end: int


@dataclass(frozen=True)
class Rows:
    """Rows of several sequences in one forward pass, sequence after sequence.

    ids: `[total]` int64 on the target's device. slots: each sequence's cache slot, all different.
    starts: tokens its slot holds before these rows. counts: its rows, at least one."""

    ids: Tensor
    slots: tuple[int, ...]
    starts: tuple[int, ...]
    counts: tuple[int, ...]

    @classmethod
    def of(cls, ids: Tensor, runs: Sequence[tuple[int, int, int]]) -> Rows:
        """`runs`: slot, start and count of each sequence."""
        slots, starts, counts = zip(*runs, strict=True)
        return cls(ids, slots, starts, counts)

    @property
    def spans(self) -> Iterator[Span]:
        begin = 0
        for slot, start, count in zip(self.slots, self.starts, self.counts, strict=True):
            yield Span(slot, start, begin, begin + count)
            begin += count

    @property
    def positions(self) -> Tensor:
        """Absolute position of each row, `[total]`."""
        parts = [torch.arange(s.start, s.start + s.end - s.begin) for s in self.spans]
        return torch.cat(parts).to(self.ids.device)


class Forward(NamedTuple):
    """`hidden` `[total, hidden]` before the last norm; `taps`, one `[total, hidden]` each asked."""

    hidden: Tensor
    taps: tuple[Tensor, ...]


class TargetState(Protocol):
    """What the target keeps of the sequences in its slots (keys, values, recurrent state)."""

    rewinds: bool
    """Whether `commit` may go back behind the last forward's rows (recurrent state cannot)."""

    def commit(self, slot: int, length: int) -> None:
        """The sequence in `slot` is its first `length` tokens: rejected draft rows are forgotten,
        and recurrent state stands where the kept rows left it."""

    def reset(self, slot: int) -> None:
        """`slot` holds nothing."""


class Target(Protocol):
    """One model on one device. `forward` leaves its rows uncommitted until `state.commit`."""

    vocab_size: int
    hidden_size: int
    layers: int
    dtype: torch.dtype
    device: torch.device

    def new_state(self, slots: int, capacity: int) -> TargetState:
        """Room for `slots` sequences of at most `capacity` tokens (rejected rows included)."""

    def forward(self, rows: Rows, state: TargetState, taps: Sequence[int] = ()) -> Forward:
        """Run `rows` through the decoder. Tap i is the output of layer i (-1: of the embedding)."""

    def embed(self, ids: Tensor) -> Tensor:
        """`[n]` ids to `[n, hidden]` as the table holds them (before any norm of the target's)."""

    def logits(self, hidden: Tensor) -> Tensor:
        """Last norm, head, and the target's own scaling of logits: `[n, vocab]`."""

    def head(self, normed: Tensor) -> Tensor:
        """The bare head on `[n, hidden]` (drafters share it): `[n, vocab]`, unscaled."""
