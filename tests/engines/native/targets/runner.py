"""A target run by hand (what a batch decoder does), and rows for it; no oracle."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from native_engine.targets.protocol import Rows, Target

VOCAB = 97


class Runner:
    """Sequences in the slots of one target, by hand: what a batch decoder does."""

    def __init__(self, target: Target, slots: int, capacity: int) -> None:
        self.target, self.state = target, target.new_state(slots, capacity)
        self.tokens: list[list[int]] = [[] for _ in range(slots)]

    @torch.inference_mode()
    def forward(self, pieces: dict[int, list[int]]) -> dict[int, Tensor]:
        """Logits of each slot's new rows, uncommitted, `[rows, vocab]` on the CPU."""
        ids = [token for piece in pieces.values() for token in piece]
        rows = Rows(
            torch.tensor(ids, device=self.target.device),
            tuple(pieces),
            tuple(len(self.tokens[slot]) for slot in pieces),
            tuple(len(piece) for piece in pieces.values()),
        )
        logits = self.target.logits(self.target.forward(rows, self.state).hidden).float().cpu()
        return {span.slot: logits[span.begin : span.end] for span in rows.spans}

    def commit(self, slot: int, accepted: Sequence[int]) -> None:
        self.tokens[slot] += accepted
        self.state.commit(slot, len(self.tokens[slot]))

    def feed(self, pieces: dict[int, list[int]]) -> dict[int, Tensor]:
        """`forward`, and every row committed."""
        logits = self.forward(pieces)
        for slot, piece in pieces.items():
            self.commit(slot, piece)
        return logits

    def greedy(self, prompts: dict[int, list[int]], steps: int) -> dict[int, list[int]]:
        """`steps` tokens for each slot, one a step."""
        logits = self.feed(prompts)
        chosen: dict[int, list[int]] = {slot: [] for slot in prompts}
        for _ in range(steps):
            step = {slot: [int(rows[-1].argmax())] for slot, rows in logits.items()}
            for slot, piece in step.items():
                chosen[slot] += piece
            logits = self.feed(step)
        return chosen


def random_ids(count: int) -> list[int]:
    return torch.randint(0, VOCAB, (count,)).tolist()


def ragged_prompts(count: int, longest: int = 60) -> dict[int, list[int]]:
    """Prompts of all lengths for slots in no order."""
    slots = torch.randperm(count).tolist()
    return {slot: random_ids(1 + (37 * i + 5) % longest) for i, slot in enumerate(slots)}


def assert_close(ours: Tensor, expected: Tensor, tolerance: float = 1e-4) -> None:
    assert ours.shape == expected.shape
    worst = (ours.double() - expected.double()).abs().max()
    assert worst < tolerance * expected.abs().max().clamp(min=1), f"{worst} off"
