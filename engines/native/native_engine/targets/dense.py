"""Llama (SmolLM2) and Qwen3 dense: pre-norm layers of grouped-query attention and SwiGLU.

Qwen3 adds an RMSNorm over each query and key head; otherwise they are one model."""

from __future__ import annotations

import torch
from torch import Tensor

from native_engine.rope import rotate_
from native_engine.targets.decoder import DecoderShape, DecoderTarget, Step
from native_engine.targets.hf_config import HfConfig
from native_engine.targets.modules import Pack, Reader, RmsNorm
from native_engine.targets.source import TensorSource


def load(config: HfConfig, source: TensorSource, pack: Pack) -> DecoderTarget:
    """Raises ConfigError naming a key whose value is not computed."""
    config.require_dense()
    shape = DecoderShape(**config.shape(), windows=config.windows(_layer_types(config)))
    size, qk_norm = (shape.vocab_size, shape.hidden_size), config.raw["model_type"] == "qwen3"
    reader = Reader(source, pack, shape.rms_norm_eps)
    table = source.take("model.embed_tokens.weight", *size)
    layers = [DenseLayer(index, shape, reader, qk_norm) for index in range(shape.layers)]
    last_norm = reader.norm("model.norm", shape.hidden_size)
    tied = config.flag("tie_word_embeddings")
    head = table if tied else source.take("lm_head.weight", *size)
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

    def __init__(self, index: int, shape: DecoderShape, reader: Reader, qk_norm: bool) -> None:
        at, hidden, kv = f"model.layers.{index}", shape.hidden_size, shape.kv_width
        outs = {"q_proj": shape.q_width, "k_proj": kv, "v_proj": kv}
        self._index, self._shape = index, shape
        self._attention_norm = reader.norm(f"{at}.input_layernorm", hidden)
        self._qkv = reader.linear(f"{at}.self_attn", outs, hidden)
        self._qk_gain = _head_gains(reader.source, at, shape) if qk_norm else None
        self._unit = RmsNorm(None, shape.rms_norm_eps)
        self._o = reader.linear(f"{at}.self_attn", {"o_proj": hidden}, shape.q_width)
        self._mlp_norm = reader.norm(f"{at}.post_attention_layernorm", hidden)
        self._mlp = reader.mlp(f"{at}.mlp", hidden, shape.intermediate_size)

    def __call__(self, x: Tensor, step: Step) -> Tensor:
        shape = self._shape
        qkv = self._qkv(self._attention_norm(x))
        heads = qkv.view(x.shape[0], -1, shape.head_dim)
        turned = heads[:, : shape.heads + shape.kv_heads]
        if self._qk_gain is not None:
            turned.copy_(self._unit(turned) * self._qk_gain)
        rotate_(turned, step.cos, step.sin)
        q, window = qkv[:, : shape.q_width], shape.windows[self._index]
        mixed = step.attend(self._index, q, heads[:, shape.heads :], window=window)
        x = self._o.add(mixed, x)
        return self._mlp.add(self._mlp_norm(x), x)


def _head_gains(source: TensorSource, at: str, shape: DecoderShape) -> Tensor:
    """Gains of the query heads, then of the key heads, `[heads + kv_heads, head_dim]`."""
    q = source.take(f"{at}.self_attn.q_norm.weight", shape.head_dim)
    k = source.take(f"{at}.self_attn.k_norm.weight", shape.head_dim)
    return torch.cat((q.expand(shape.heads, -1), k.expand(shape.kv_heads, -1)))
