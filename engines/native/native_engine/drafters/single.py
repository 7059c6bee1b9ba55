"""A parallel drafter for the single-sequence path: slot 0 of one that could serve many."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from native_engine.config import EngineConfig
from native_engine.drafters.block_drafter import BlockDrafter
from native_engine.drafters.load import load_named
from native_engine.drafters.protocol import Ask
from native_engine.llama import Llama
from native_engine.targets.protocol import Rows


class SingleDrafter:
    """Implements Drafter. Room for `capacity` tokens, drafts of at most `draft_tokens`."""

    def __init__(self, inner: BlockDrafter, draft_tokens: int, capacity: int) -> None:
        inner.open(1, capacity)
        self.taps = inner.taps
        self.inner = inner
        self._draft_tokens = draft_tokens
        self._held = 0

    def reset(self) -> None:
        self.inner.reset(0)
        self._held = 0

    def propose(self, context_ids: Sequence[int]) -> list[int]:
        return self.inner.propose([Ask(0, context_ids, self._draft_tokens)]).tokens[0]

    def observe(self, rows: Sequence[int], logits: Tensor, accepted: int) -> None:
        """Nothing to learn: `read` is given what it needs."""

    def read(self, taps: Sequence[Tensor]) -> None:
        count = len(taps[0])
        ids = torch.empty(count, dtype=torch.long)
        self.inner.observe(Rows(ids, (0,), (self._held,), (count,)), taps)
        self._held += count

    def rewind(self, held: int) -> None:
        """The next row read is at position `held`, at most as many as were read."""
        self._held = held


class LlamaTables:
    """What a drafter shares of the single path's target."""

    def __init__(self, model: Llama) -> None:
        self._model = model
        self.vocab_size, self.hidden_size = model.config.vocab_size, model.config.hidden_size
        self.layers, self.dtype = model.config.layers, model.dtype
        self.device = model.embedding.device

    def embed(self, ids: Tensor) -> Tensor:
        return F.embedding(ids, self._model.embedding)

    def head(self, normed: Tensor) -> Tensor:
        return self._model.head(normed)


def single_drafter(
    engine: EngineConfig, model: Llama, folder: str | None, capacity: int
) -> SingleDrafter:
    """The parallel drafter engine.toml names, its weights from `folder`; matrices are kept as the
    target's are. Raises ConfigError or WeightsError, as the batch path does."""
    linear = engine.linear.bf16 if model.dtype == torch.bfloat16 else engine.linear.fp32
    name = engine.speculation.drafter
    inner = load_named(name, engine, folder, LlamaTables(model), linear=linear)
    return SingleDrafter(inner, engine.speculation.draft_tokens, capacity)
