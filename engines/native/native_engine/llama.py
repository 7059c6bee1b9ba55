"""The Llama forward pass for a few rows of one sequence on a static KV cache.

Overhead decides at one row (a layer is about 0.45 ms of weight reading), so operators are few:
fused qkv and gate/up, in-place RoPE on the qkv output, one KV write, the residual added inside the
linear, views of the cache made once a step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from native_engine.config import EngineConfig, ModelConfig
from native_engine.kv_cache import KVCache
from native_engine.linear import Linear, linear_backend
from native_engine.masks import MaskCache
from native_engine.rope import RopeTable, rotate_
from native_engine.targets.protocol import Forward
from native_engine.weights import Weights

WIDE_ROWS = 64


@dataclass
class Layer:
    """Norm gains are doubled `[2 * hidden]` (see `rms_norm`)."""

    input_norm: Tensor
    qkv: Linear
    o: Linear
    post_norm: Tensor
    gate_up: Linear
    down: Linear


class Llama:
    """`forward` runs rows through the decoder, `logits` the head on chosen rows of its output."""

    def __init__(
        self, config: ModelConfig, weights: Weights, engine: EngineConfig, max_tokens: int
    ) -> None:
        dtype = weights.embedding.dtype
        pack = linear_backend(engine.linear.bf16 if dtype == torch.bfloat16 else engine.linear.fp32)
        self.config = config
        self.dtype = dtype
        self.embedding = weights.embedding
        self.layers = [
            Layer(
                input_norm=w.input_norm.repeat(2),
                qkv=pack(w.qkv),
                o=pack(w.o),
                post_norm=w.post_norm.repeat(2),
                gate_up=pack(w.gate_up),
                down=pack(w.down),
            )
            for w in weights.layers
        ]
        self.final_norm = weights.final_norm.repeat(2)
        self.head = pack(weights.head)
        self.rope = RopeTable(config, max_tokens, dtype)
        self.masks = MaskCache(config.group, max_tokens, dtype)
        self.norm = rms_norm
        self.rotate = rotate_
        self.attend = grouped_attention
        self.activate = swiglu

    def forward(self, ids: Tensor, cache: KVCache, taps: Sequence[int] = ()) -> Forward:
        """Append `ids` `[rows]` to the sequence in `cache`; final hidden states `[rows, hidden]`
        before the last norm. Tap i is the output of layer i (-1: of the embedding), ids rising."""
        c = self.config
        rows, start = ids.shape[0], cache.length
        q_width, hd = c.heads * c.head_dim, c.head_dim
        cos, sin = self.rope.rows(start, rows)
        mask = self.masks.get(start, rows)
        eps, norm, attend = c.rms_norm_eps, self.norm, self.attend
        x = F.embedding(ids, self.embedding)
        kept = [x] if -1 in taps else []
        views = zip(self.layers, *cache.extend(rows), strict=True)
        for i, (layer, keys, values, slot) in enumerate(views):
            qkv = layer.qkv(norm(x, layer.input_norm, eps))
            heads = qkv.view(rows, -1, hd)
            self.rotate(heads[:, : c.heads + c.kv_heads], cos, sin)
            slot.copy_(heads[:, c.heads :])
            mixed = attend(qkv[:, :q_width], keys, values, mask)
            x = layer.o.add(mixed, x)
            inner = self.activate(layer.gate_up(norm(x, layer.post_norm, eps)))
            x = layer.down.add(inner, x)
            if i in taps:
                kept.append(x)
        return Forward(x, tuple(kept))

    def logits(self, hidden: Tensor) -> Tensor:
        """Head on `[rows, hidden]` of `forward`'s output: `[rows, vocab]` in the model's dtype."""
        return self.head(self.norm(hidden, self.final_norm, self.config.rms_norm_eps))


def rms_norm(x: Tensor, doubled_gain: Tensor, eps: float) -> Tensor:
    """RMSNorm of `[rows, d]`, through LayerNorm's fused kernel.

    `[x, -x]` has mean 0 and variance mean(x^2), so the first half of its LayerNorm is RMSNorm of x.
    F.rms_norm is a chain of small operators on CPU and takes twice as long at one row."""
    d = x.shape[-1]
    paired = torch.cat((x, x.neg()), dim=-1)
    return F.layer_norm(paired, (2 * d,), doubled_gain, None, eps)[:, :d]


def swiglu(gate_up: Tensor) -> Tensor:
    """`silu(gate) * up` of `[rows, 2 * ff]`."""
    gate, up = gate_up.chunk(2, dim=-1)
    return F.silu(gate).mul_(up)


def grouped_attention(q: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
    """Attention of `q` `[rows, heads * head_dim]` over `[1, kv_heads, tokens, head_dim]`.

    With few rows the query heads that share a KV head become rows of one head (the mask then has
    `group * rows` rows): keys are read once a group, 1.6 to 1.9 times faster at 8 rows. Wide blocks
    of prefill are compute-bound and go head by head."""
    rows, width = q.shape
    _, kv_heads, _, hd = keys.shape
    group = width // (kv_heads * hd)
    if mask is not None and mask.shape[0] == rows and group > 1:
        return wide_attention(q, keys, values, mask)
    if rows == 1:
        packed = q.view(1, kv_heads, group, hd)
    else:
        packed = q.view(rows, kv_heads, group, hd).permute(1, 2, 0, 3)
        packed = packed.reshape(1, kv_heads, group * rows, hd)
    out = F.scaled_dot_product_attention(packed, keys, values, attn_mask=mask)
    if rows == 1:
        return out.reshape(1, width)
    return out.view(kv_heads, group, rows, hd).permute(2, 0, 1, 3).reshape(rows, width)


def wide_attention(q: Tensor, keys: Tensor, values: Tensor, mask: Tensor) -> Tensor:
    """`grouped_attention` of many rows, `WIDE_ROWS` at a time over the keys that they can see."""
    rows, width = q.shape
    start = keys.shape[2] - rows
    heads = q.view(1, rows, -1, keys.shape[3]).transpose(1, 2)
    blocks = []
    for begin in range(0, rows, WIDE_ROWS):
        end = min(begin + WIDE_ROWS, rows)
        seen = start + end
        blocks.append(
            F.scaled_dot_product_attention(
                heads[:, :, begin:end],
                keys[:, :, :seen],
                values[:, :, :seen],
                attn_mask=mask[begin:end, :seen],
                enable_gqa=True,
            )
        )
    return torch.cat(blocks, dim=2).transpose(1, 2).reshape(rows, width)
