"""DSpark's Markov heads: the token before corrects a slot's logits (arXiv 2607.05147)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from native_engine.drafters.config import DrafterConfig
from native_engine.linear import Linear
from native_engine.targets.source import TensorSource


class Biased:
    """A small linear with a bias (`.bias` may be missing from the checkpoint: none)."""

    def __init__(self, source: TensorSource, name: str, out: int, inputs: int) -> None:
        self._weight = source.take(f"{name}.weight", out, inputs)
        bias = f"{name}.bias"
        self._bias = source.take(bias, out) if source.has(bias) else None

    def __call__(self, *parts: Tensor) -> Tensor:
        """Of the concatenation of `parts`, `[n, ..]` each: `[n, out]`."""
        return F.linear(torch.cat(parts, dim=-1), self._weight, self._bias)


class Correction(Protocol):
    """`step(previous, hidden, state)`: what `W2` projects to logits `[n, rank]`, and the state
    handed to the next slot. previous: `W1` of the token before, `[n, rank]`."""

    def __call__(
        self, previous: Tensor, hidden: Tensor, state: Tensor
    ) -> tuple[Tensor, Tensor]: ...


class MarkovHead:
    """`logits_k += W2 f(W1[x_{k-1}], h_k, s_{k-1})`, left to right, `s_0 = 0`."""

    def __init__(
        self, config: DrafterConfig, source: TensorSource, pack: Callable[[Tensor], Linear]
    ) -> None:
        assert config.markov is not None
        vocab, self.rank = config.vocab_size, config.markov.rank
        self._w1 = source.take("markov_head.markov_w1.weight", vocab, self.rank)
        self._w2 = pack(source.take("markov_head.markov_w2.weight", vocab, self.rank))
        self._correct = _correction(config, source)

    def start(self, anchors: Tensor) -> Tensor:
        """State before the first slot, `[n, rank]`."""
        return self._w1.new_zeros(anchors.shape[0], self.rank)

    def embed(self, previous: Tensor) -> Tensor:
        """`W1` of `[n]` token ids, `[n, rank]`."""
        return F.embedding(previous, self._w1)

    def step(self, previous: Tensor, hidden: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """Logit bias `[n, vocab]` of one slot, and the state after it."""
        latent, state = self._correct(previous, hidden, state)
        return self._w2(latent), state


def _correction(config: DrafterConfig, source: TensorSource) -> Correction:
    assert config.markov is not None
    r, d = config.markov.rank, config.hidden_size
    if config.markov.kind == "gated":
        gate = Biased(source, "markov_head.gate_proj", r, d + r)
        return lambda previous, hidden, state: (
            torch.sigmoid(gate(hidden, previous)) * previous,
            state,
        )
    if config.markov.kind == "rnn":
        joint = Biased(source, "markov_head.joint_proj", 3 * r, 2 * r + d)

        def recurrent(previous: Tensor, hidden: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
            gate, candidate, output = joint(state, previous, hidden).chunk(3, dim=-1)
            kept = torch.sigmoid(gate)
            return torch.tanh(output), kept * state + (1 - kept) * torch.tanh(candidate)

        return recurrent
    return lambda previous, hidden, state: (previous, state)
