"""A target of decoder layers: everything but the layers themselves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch.nn.functional as F
from torch import Tensor

from native_engine.errors import ConfigError
from native_engine.linear import Linear
from native_engine.rope import Rotary
from native_engine.targets.attention import CausalMasks, RaggedAttention
from native_engine.targets.hf_config import ModelShape
from native_engine.targets.kv_slots import KvSlots
from native_engine.targets.modules import RmsNorm
from native_engine.targets.protocol import Forward, Rows, TargetState


@dataclass(frozen=True)
class DecoderShape(ModelShape):
    """windows: tokens each attention layer sees, None all; one for each."""

    windows: tuple[int | None, ...]


class Step(NamedTuple):
    """One forward pass, as its layers need it; cos and sin as `Rotary.at` gives them. mix: of the
    recurrent layers, where there are any (`HybridState.mix`)."""

    attend: RaggedAttention
    cos: Tensor
    sin: Tensor
    mix: Callable[[int, Tensor, Tensor], Tensor] | None = None


DecoderLayer = Callable[[Tensor, Step], Tensor]
"""`[total, hidden]` to `[total, hidden]`, residual included; its argument is not changed."""


def _unscaled(logits: Tensor) -> Tensor:
    return logits


class DecoderTarget:
    """A `Target` whose state is `KvSlots` and rewinds, as long as all layers attend.

    rotary_dims: rotated dimensions of a head; None: all. embed_norm: of the embedding's output,
    before the first layer (tap -1 comes after it). scale_logits: the target's own last step on the
    head's output."""

    def __init__(
        self,
        shape: DecoderShape,
        embedding: Tensor,
        decoder: Sequence[DecoderLayer],
        last_norm: RmsNorm,
        head: Linear,
        rope_theta: float,
        *,
        rotary_dims: int | None = None,
        embed_norm: RmsNorm | None = None,
        scale_logits: Callable[[Tensor], Tensor] = _unscaled,
    ) -> None:
        self.vocab_size, self.hidden_size = shape.vocab_size, shape.hidden_size
        self.layers = len(decoder)
        self.dtype, self.device = embedding.dtype, embedding.device
        self._shape, self._embedding, self._decoder = shape, embedding, tuple(decoder)
        self._last_norm, self._head = last_norm, head
        self._embed_norm, self._scale_logits = embed_norm, scale_logits
        dims = rotary_dims or shape.head_dim
        self._rotary = Rotary(dims, rope_theta, self.device, self.dtype)
        self._masks = CausalMasks(shape.group, self.dtype, self.device)

    def new_state(self, slots: int, capacity: int) -> TargetState:
        return self._new_kv(self.layers, slots, capacity)

    def forward(self, rows: Rows, state: TargetState, taps: Sequence[int] = ()) -> Forward:
        if not all(-1 <= tap < self.layers for tap in taps):
            raise ConfigError(f"taps {list(taps)}: layers are 0 to {self.layers - 1}, -1 embedding")
        step = self._begin(rows, state)
        x = self.embed(rows.ids)
        if self._embed_norm is not None:
            x = self._embed_norm(x)
        tapped = {-1: x}
        for i, layer in enumerate(self._decoder):
            x = layer(x, step)
            if i in taps:
                tapped[i] = x
        return Forward(x, tuple(tapped[tap] for tap in taps))

    def embed(self, ids: Tensor) -> Tensor:
        return F.embedding(ids, self._embedding)

    def logits(self, hidden: Tensor) -> Tensor:
        return self._scale_logits(self.head(self._last_norm(hidden)))

    def head(self, normed: Tensor) -> Tensor:
        return self._head(normed)

    def _begin(self, rows: Rows, state: TargetState) -> Step:
        assert isinstance(state, KvSlots)
        return self._attending(rows, state)

    def _new_kv(self, layers: int, slots: int, capacity: int) -> KvSlots:
        shape = self._shape
        return KvSlots(
            layers, slots, capacity, shape.kv_heads, shape.head_dim, self.dtype, self.device
        )

    def _attending(self, rows: Rows, kv: KvSlots) -> Step:
        return Step(RaggedAttention(rows, kv, self._masks), *self._rotary.at(rows.positions))
