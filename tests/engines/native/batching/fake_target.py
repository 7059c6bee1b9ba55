"""A target without weights: each next token is a hash of all tokens before it.

It is strict about the protocol: rows must continue what is committed, fit, and be committed before
the next forward pass; taps are the rows' own positions, so that a drafter's view can be checked."""

from __future__ import annotations

import random
from collections.abc import Sequence

import torch
from torch import Tensor

from native_engine.targets.protocol import Forward, Rows

VOCAB = 50


def logits_after(tokens: Sequence[int]) -> Tensor:
    """`[VOCAB]`, a function of the whole context."""
    generator = random.Random(hash(tuple(tokens)))
    return torch.tensor([generator.gauss(0, 2) for _ in range(VOCAB)])


def greedy_answer(prompt: Sequence[int], count: int) -> list[int]:
    """The oracle: one token after another."""
    tokens = list(prompt)
    for _ in range(count):
        tokens.append(int(logits_after(tokens).argmax()))
    return tokens[len(prompt) :]


class FakeState:
    def __init__(self, slots: int, capacity: int, rewinds: bool) -> None:
        self.rewinds = rewinds
        self.capacity = capacity
        self.held: list[list[int]] = [[] for _ in range(slots)]
        self.written: list[list[int]] = [[] for _ in range(slots)]
        self.open: set[int] = set()

    def commit(self, slot: int, length: int) -> None:
        source = self.written[slot] if slot in self.open else self.held[slot]
        assert length <= len(source)
        assert self.rewinds or length >= len(self.held[slot]), "this state cannot rewind"
        self.held[slot] = source[:length]
        self.open.discard(slot)

    def reset(self, slot: int) -> None:
        self.held[slot] = []
        self.open.discard(slot)


class FakeTarget:
    """`poison`: token ids after which logits are NaN; `crash`: ids that make a forward raise."""

    vocab_size, hidden_size, layers = VOCAB, VOCAB, 4
    dtype, device = torch.float32, torch.device("cpu")

    def __init__(self, rewinds: bool = True) -> None:
        self.rewinds = rewinds
        self.poison: set[int] = set()
        self.crash: set[int] = set()
        self.batches: list[Rows] = []

    def new_state(self, slots: int, capacity: int) -> FakeState:
        return FakeState(slots, capacity, self.rewinds)

    def forward(self, rows: Rows, state: FakeState, taps: Sequence[int] = ()) -> Forward:
        ids = rows.ids.tolist()
        assert len(set(rows.slots)) == len(rows.slots) and len(ids) == sum(rows.counts)
        if self.crash & set(ids):
            raise RuntimeError("a kernel failed")
        self.batches.append(rows)
        hidden = []
        for slot, start, begin, end in rows.spans:
            text = list(state.held[slot])
            assert start == len(text) and slot not in state.open and end > begin
            for token in ids[begin:end]:
                text.append(token)
                row = logits_after(text)
                hidden.append(row.fill_(float("nan")) if token in self.poison else row)
            assert len(text) <= state.capacity
            state.written[slot] = text
            state.open.add(slot)
        positions = rows.positions.float()[:, None]
        return Forward(torch.stack(hidden), tuple(positions + 1000 * tap for tap in taps))

    def embed(self, ids: Tensor) -> Tensor:
        return torch.zeros(len(ids), VOCAB)

    def logits(self, hidden: Tensor) -> Tensor:
        return hidden

    def head(self, normed: Tensor) -> Tensor:
        return normed
