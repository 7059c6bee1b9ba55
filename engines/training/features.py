"""What the drafter sees of the target: layer outputs and final hidden states of whole sequences.

One causal forward pass of right-padded sequences, no KV cache; a group of batches is kept on the
device and read several times with fresh anchors."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from engines.training.attention import attend
from engines.training.corpus import Batch, BatchOrder, Corpus
from engines.training.errors import TrainingError
from native_engine.config import ModelConfig
from native_engine.errors import NativeEngineError
from native_engine.llama import swiglu
from native_engine.rope import RopeTable, rotate_
from native_engine.weights import load_weights


class Features(NamedTuple):
    """`taps` `[n, tokens, taps * hidden]`; `final`, the last norm's output, `[n, tokens, hidden]`,
    where it was asked for."""

    taps: Tensor
    final: Tensor | None


class FrozenTarget:
    """A Llama checkpoint whose weights are only read."""

    def __init__(self, folder: Path, device: torch.device, dtype: torch.dtype) -> None:
        """TrainingError where the folder holds no Llama checkpoint."""
        try:
            self.config = ModelConfig.from_folder(folder)
            weights = load_weights(folder, self.config, dtype)
        except NativeEngineError as error:
            raise TrainingError(
                f"--target {folder}: {error}", "Give the folder of the converted target"
            ) from None
        self.device, self.dtype = device, dtype
        self.embedding, self.head = weights.embedding.to(device), weights.head.to(device)
        self.final_norm = weights.final_norm.to(device)
        self._layers = [
            {name: tensor.to(device) for name, tensor in vars(layer).items()}
            for layer in weights.layers
        ]
        self._angles: tuple[Tensor, Tensor] | None = None

    def embed(self, ids: Tensor) -> Tensor:
        return F.embedding(ids, self.embedding)

    @torch.no_grad()
    def features(self, tokens: Tensor, taps: Sequence[int], final: bool = False) -> Features:
        """Of `tokens` `[n, padded]`: causal, so that what stands behind an end changes nothing
        before it. taps: layer ids, -1 the embedding."""
        c = self.config
        if not all(-1 <= tap < c.layers for tap in taps):
            raise TrainingError(f"taps {list(taps)}", f"Layers are 0 to {c.layers - 1}")
        n, length = tokens.shape
        cos, sin = (table.repeat(n, 1, 1) for table in self._rope(length))
        x = self.embed(tokens).flatten(0, 1)
        tapped = {-1: x}
        for index, layer in enumerate(self._layers):
            qkv = F.linear(self._norm(x, layer["input_norm"]), layer["qkv"])
            heads = qkv.view(n * length, -1, c.head_dim)
            rotate_(heads[:, : c.heads + c.kv_heads], cos, sin)
            by_head = heads.view(n, length, -1, c.head_dim).transpose(1, 2)
            q, shared = by_head[:, : c.heads], by_head[:, c.heads :]
            k, v = (part.repeat_interleave(c.group, dim=1) for part in shared.chunk(2, dim=1))
            mixed = attend(q, k, v)
            x = x + F.linear(mixed.transpose(1, 2).reshape(n * length, -1), layer["o"])
            inner = F.linear(self._norm(x, layer["post_norm"]), layer["gate_up"])
            x = x + F.linear(swiglu(inner), layer["down"])
            if index in taps:
                tapped[index] = x
            if not final and index >= max(taps):
                break
        joined = torch.cat([tapped[tap] for tap in taps], dim=-1).view(n, length, -1)
        last = self._norm(x, self.final_norm).view(n, length, -1) if final else None
        return Features(joined, last)

    def _norm(self, x: Tensor, gain: Tensor) -> Tensor:
        return F.rms_norm(x, (x.shape[-1],), gain, self.config.rms_norm_eps)

    def _rope(self, positions: int) -> tuple[Tensor, Tensor]:
        if self._angles is None or len(self._angles[0]) < positions:
            if positions > self.config.max_positions:
                raise TrainingError(
                    f"a sequence of {positions} tokens, the target has "
                    f"{self.config.max_positions} positions",
                    "Lower --max-length",
                )
            table = RopeTable(self.config, positions, self.dtype)
            self._angles = table.cos.to(self.device), table.sin.to(self.device)
        return self._angles[0][:positions], self._angles[1][:positions]


class CachedFeatures:
    """Batches in groups of at most `cache_tokens` padded tokens; each group is read `reuse` times
    before the next. `at(step)` depends on the step alone."""

    def __init__(
        self,
        corpus: Corpus,
        order: BatchOrder,
        target: FrozenTarget,
        taps: Sequence[int],
        *,
        final: bool,
        reuse: int,
        batch_tokens: int,
        cache_tokens: int,
    ) -> None:
        self._corpus, self._order, self._target = corpus, order, target
        self._taps, self._final, self._reuse = tuple(taps), final, reuse
        # Without a second reading nothing is worth keeping.
        self._group = max(1, cache_tokens // batch_tokens) if reuse > 1 else 1
        self._held: dict[int, tuple[Batch, Features]] = {}

    def at(self, step: int) -> tuple[Batch, Features]:
        """The batch of optimiser step `step`, and the target's features of it."""
        group, within = divmod(step, self._group * self._reuse)
        first = group * self._group
        index = first + within % self._group
        if index not in self._held:
            self._held = {i: kept for i, kept in self._held.items() if i >= first}
            batch = self._corpus.batch(self._order[index])
            self._held[index] = batch, self._target.features(batch.tokens, self._taps, self._final)
        return self._held[index]
