"""Every drafter against its equations over many rounds: ragged batches, partial acceptance,
sequences that start, grow past the sliding windows and are replaced."""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from native_engine.drafters.block_drafter import BlockDrafter
from native_engine.drafters.load import load_drafter
from native_engine.drafters.protocol import Ask
from native_engine.targets.protocol import Rows
from tests.engines.native.drafters import synthetic
from tests.engines.native.drafters.fake_target import FakeTarget
from tests.engines.native.drafters.reference import Reference
from tests.engines.native.drafters.synthetic import VOCAB

SLOTS = 4
KINDS = {
    "dflash": synthetic.DFLASH,
    "dflash2": synthetic.DFLASH2,
    "muse-dflash2": synthetic.MUSE,
    "dspark-vanilla-yarn": synthetic.DSPARK,
    "dspark-gated": synthetic.GATED,
    "dspark-rnn-own-vocabulary": synthetic.DEEPSPEC,
}


class Simulation:
    """Sequences in slots whose accepted lengths are drawn at random, as a batch decoder would."""

    def __init__(self, folder: Path, raw: Mapping[str, Any], longest: int) -> None:
        weights = synthetic.write_checkpoint(folder, raw)
        self.target, self.longest = FakeTarget(), longest
        self.drafter: BlockDrafter = load_drafter(
            folder, self.target, torch.float32, torch.device("cpu")
        )
        self.reference = Reference(raw, weights, self.target.table, self.target.head_weight)
        self.drafter.open(SLOTS, longest + 2 * self.reference.block_size)
        self.random = random.Random(3)
        self.ids: list[list[int]] = [[] for _ in range(SLOTS)]
        self.names = [0] * SLOTS
        self.started = 0

    def taps(self, slot: int) -> list[Tensor]:
        positions = range(len(self.ids[slot]) - 1)
        return self.target.tap(self.names[slot], positions, len(self.drafter.taps))

    def observe(self, spans: list[tuple[int, int, int]]) -> None:
        """Rows `first:end` of each slot, in one ragged call."""
        rows = Rows(
            ids=torch.tensor([t for s, a, b in spans for t in self.ids[s][a:b]]),
            slots=tuple(s for s, _, _ in spans),
            starts=tuple(a for _, a, _ in spans),
            counts=tuple(b - a for _, a, b in spans),
        )
        parts = [
            self.target.tap(self.names[s], range(a, b), len(self.drafter.taps)) for s, a, b in spans
        ]
        self.drafter.observe(rows, [torch.cat(tap) for tap in zip(*parts, strict=True)])

    def begin(self, slots: list[int]) -> None:
        """New prompts, read in two chunks."""
        for slot in slots:
            self.drafter.reset(slot)
            self.started += 1
            self.names[slot] = self.started
            length = self.random.randrange(4, 14)
            self.ids[slot] = [self.random.randrange(VOCAB - 1) for _ in range(length)]
        cuts = {slot: self.random.randrange(1, len(self.ids[slot]) - 1) for slot in slots}
        self.observe([(slot, 0, cuts[slot]) for slot in slots])
        self.observe([(slot, cuts[slot], len(self.ids[slot]) - 1) for slot in slots])

    def round(self, temperature: float = 0.0) -> None:
        """Ask for drafts, check each against the reference, accept a part of each."""
        empty = [s for s in range(SLOTS) if not self.ids[s] or len(self.ids[s]) > self.longest]
        if empty:
            self.begin(empty)
        slots = self.random.sample(range(SLOTS), self.random.randint(1, SLOTS))
        most = self.drafter.draft_tokens
        asks = [
            Ask(
                slot,
                self.ids[slot],
                self.random.randint(0, most + 1),
                self.random.choice([0.0, temperature]),
                torch.Generator().manual_seed(self.started + len(self.ids[slot])),
            )
            for slot in slots
        ]
        hidden = self.drafter.hidden(asks)
        proposal = self.drafter.propose(asks)
        for i, ask in enumerate(asks):
            expected = self.reference.hidden(ask.context_ids, self.taps(ask.slot))
            assert (hidden[i].double() - expected).abs().max() < 1e-4
            assert len(proposal.tokens[i]) == min(ask.limit, most)
            self.check(ask, proposal.tokens[i], proposal.q[i], expected)
        self.accept(slots, proposal.tokens)

    def check(self, ask: Ask, tokens: list[int], q: Tensor | None, hidden: Tensor) -> None:
        anchor = ask.context_ids[-1]
        if ask.temperature == 0:
            assert q is None
            assert tokens == self.reference.greedy(hidden, anchor, len(tokens))
        elif tokens:
            assert q is not None and q.shape == (len(tokens), VOCAB) and q.dtype == torch.float32
            scores = self.reference.scores(hidden, anchor, tokens)
            expected = torch.stack(
                [torch.softmax(s / ask.temperature, 0) for s in scores[: len(tokens)]]
            )
            assert (q.double() - expected).abs().max() < 1e-4
            assert all(q[k, token] > 0 for k, token in enumerate(tokens))

    def accept(self, slots: list[int], drafts: list[list[int]]) -> None:
        spans = []
        for slot, draft in zip(slots, drafts, strict=True):
            first = len(self.ids[slot]) - 1
            self.ids[slot] += draft[: self.random.randint(0, len(draft))]
            self.ids[slot].append(self.random.randrange(VOCAB - 1))
            spans.append((slot, first, len(self.ids[slot]) - 1))
        self.observe(spans)


@pytest.mark.parametrize("kind", KINDS)
def test_rounds_agree_with_the_equations(tmp_path: Path, kind: str) -> None:
    simulation = Simulation(tmp_path, KINDS[kind], longest=30)
    for _ in range(40):
        simulation.round(temperature=0.7)
    assert simulation.started > SLOTS


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_three_hundred_rounds_agree_with_the_equations(tmp_path: Path, kind: str) -> None:
    simulation = Simulation(tmp_path, KINDS[kind], longest=120)
    for _ in range(300):
        simulation.round(temperature=0.7)
