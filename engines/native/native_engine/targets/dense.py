"""Llama (SmolLM2) and Qwen3 dense: pre-norm layers of grouped-query attention and SwiGLU.

Qwen3 adds an RMSNorm over each query and key head; otherwise they are one model."""

from __future__ import annotations

import torch
from torch import Tensor

from native_engine.rope import rotate_
from native_engine.targets.decoder import DecoderShape, DecoderTarget, Step
from native_engine.targets.hf_config import HfConfig
from native_engine.targets.mlp import GatedMlp, Pack
from native_engine.targets.norms import RmsNorm
from native_engine.targets.source import TensorSource, stacked


def load(config: HfConfig, source: TensorSource, pack: Pack) -> DecoderTarget:
    """Raises ConfigError naming a key whose value is not computed."""
    config.require(
        hidden_act="silu", attention_bias=False, mlp_bias=False, quantization_config=None
    )
    shape = DecoderShape.read(config, config.windows(_layer_types(config)))
    table = source.take("model.embed_tokens.weight", shape.vocab, shape.hidden)
    layers = [
        DenseLayer(index, shape, source, pack, config.raw["model_type"] == "qwen3")
        for index in range(len(shape.windows))
    ]
    last_norm = RmsNorm(source.take("model.norm.weight", shape.hidden), shape.eps)
    tied = config.flag("tie_word_embeddings")
    head = table if tied else source.take("lm_head.weight", shape.vocab, shape.hidden)
    return DecoderTarget(shape, table, layers, last_norm, pack(head), config.rope_theta())


def _layer_types(config: HfConfig) -> list[str]:
    """Where config.json has none: Qwen3 may slide from `max_window_layers` on."""
    layers = config.integer("num_hidden_layers")
    full = layers
    if config.flag("use_sliding_window") and config.raw.get("sliding_window") is not None:
        full = min(layers, config.integer("max_window_layers", 28))
    return ["full_attention"] * full + ["sliding_attention"] * (layers - full)


class DenseLayer:
    """Layer `index`, its q, k, v and its gate, up each one product."""

    def __init__(
        self, index: int, shape: DecoderShape, source: TensorSource, pack: Pack, qk_norm: bool
    ) -> None:
        at = f"model.layers.{index}"
        hidden, q, kv = shape.hidden, shape.q_width, shape.kv_width
        outs = {"q_proj": q, "k_proj": kv, "v_proj": kv}
        self._index, self._shape = index, shape
        self._attention_norm = RmsNorm(
            source.take(f"{at}.input_layernorm.weight", hidden), shape.eps
        )
        self._qkv = pack(stacked(source, f"{at}.self_attn", outs, hidden))
        self._qk_gain = _head_gains(source, at, shape) if qk_norm else None
        self._unit = RmsNorm(None, shape.eps)
        self._o = pack(source.take(f"{at}.self_attn.o_proj.weight", hidden, q))
        self._mlp_norm = RmsNorm(
            source.take(f"{at}.post_attention_layernorm.weight", hidden), shape.eps
        )
        self._mlp = GatedMlp(source, f"{at}.mlp", hidden, shape.inner, pack)

    def __call__(self, x: Tensor, step: Step) -> Tensor:
        shape = self._shape
        qkv = self._qkv(self._attention_norm(x))
        heads = qkv.view(x.shape[0], -1, shape.head_dim)
        turned = heads[:, : shape.heads + shape.kv_heads]
        if self._qk_gain is not None:
            turned.copy_(self._unit(turned) * self._qk_gain)
        rotate_(turned, step.cos, step.sin)
        mixed = step.attend(
            self._index,
            qkv[:, : shape.q_width],
            heads[:, shape.heads :],
            window=shape.windows[self._index],
        )
        x = self._o.add(mixed, x)
        return self._mlp.add(self._mlp_norm(x), x)


def _head_gains(source: TensorSource, at: str, shape: DecoderShape) -> Tensor:
    """Gains of the query heads, then of the key heads, `[heads + kv_heads, head_dim]`."""
    q = source.take(f"{at}.self_attn.q_norm.weight", shape.head_dim)
    k = source.take(f"{at}.self_attn.k_norm.weight", shape.head_dim)
    return torch.cat((q.expand(shape.heads, -1), k.expand(shape.kv_heads, -1)))
