"""The text part of Muse-Glimmer-30B.

Three sliding layers to one full one, and the full ones have no RoPE. Embeddings, queries and keys
pass RMSNorms without gains, queries are scaled, attention is gated by a sigmoid, and each sublayer
has a norm with a centred gain before and after. Logits are multiplied, then capped by tanh."""

from __future__ import annotations

import math
from functools import partial

import torch
from torch import Tensor

from native_engine.rope import rotate_
from native_engine.targets.decoder import DecoderShape, DecoderTarget, Step
from native_engine.targets.hf_config import HfConfig
from native_engine.targets.modules import Pack, Reader, RmsNorm
from native_engine.targets.source import TensorSource

PREFIX = "model.language_model"


def load(config: HfConfig, source: TensorSource, pack: Pack) -> DecoderTarget:
    """Of the whole checkpoint's config.json. Raises ConfigError naming a key not computed."""
    text = config.section("text_config")
    for part in (config, text):
        part.require(tie_word_embeddings=False, quantization_config=None)
    text.require(hidden_activation="silu", attention_bias=False)
    layers = text.integer("num_hidden_layers")
    kinds = ["sliding_attention"] * layers
    kinds[(layers - 1) % 4 :: 4] = ["full_attention"] * len(kinds[(layers - 1) % 4 :: 4])
    shape = DecoderShape(**text.shape(), windows=text.windows(kinds))
    reader = Reader(source, pack, shape.rms_norm_eps, centred=True)
    rotated, size = _rotated(text, shape), (shape.vocab_size, shape.hidden_size)
    table = source.take(f"{PREFIX}.embed_tokens.weight", *size)
    decoder = [MuseLayer(index, shape, rotated[index], text, reader) for index in range(layers)]
    last_gain = source.take(f"{PREFIX}.norm.weight", shape.hidden_size)
    multiplier, cap = text.number("output_multiplier"), text.number("final_logit_softcapping")
    return DecoderTarget(
        shape,
        table,
        decoder,
        RmsNorm(last_gain, shape.rms_norm_eps),
        pack(source.take("lm_head.weight", *size)),
        text.rope_theta(),
        embed_norm=RmsNorm(None, shape.rms_norm_eps),
        scale_logits=partial(soft_cap, multiplier=multiplier, cap=cap),
    )


def _rotated(text: HfConfig, shape: DecoderShape) -> list[bool]:
    """Whether each layer has RoPE: `layer_rope_theta` is its theta or 0."""
    theta, layers = text.rope_theta(), len(shape.windows)
    default = [0.0 if (layers - 1 - i) % 4 == 0 else theta for i in range(layers)]
    thetas = text.raw.get("layer_rope_theta") or default
    if len(thetas) != layers or not set(thetas) <= {0, theta}:
        raise text.error("layer_rope_theta", f"0 or {theta} for each layer")
    return [value != 0 for value in thetas]


def soft_cap(logits: Tensor, multiplier: float, cap: float) -> Tensor:
    """`cap * tanh(logits * multiplier / cap)`, in FP32: in BF16 the cap would make ties."""
    return torch.tanh(logits.float() * (multiplier / cap)) * cap


class MuseLayer:
    """Layer `index`; q, k, v and the gate are one product of the same normed input."""

    def __init__(
        self, index: int, shape: DecoderShape, rotated: bool, text: HfConfig, reader: Reader
    ) -> None:
        at, hidden = f"{PREFIX}.layers.{index}", shape.hidden_size
        q, kv, post_eps = shape.q_width, shape.kv_width, text.number("post_norm_eps")
        outs = {"q_proj": q, "k_proj": kv, "v_proj": kv, "gate_proj": q}
        self._index, self._shape, self._rotated = index, shape, rotated
        self._scale = text.number("qk_scale_factor") / math.sqrt(shape.head_dim)
        self._attention_norm = reader.norm(f"{at}.input_layernorm", hidden)
        self._qkv_gate = reader.linear(f"{at}.self_attn", outs, hidden)
        self._unit = RmsNorm(None, shape.rms_norm_eps)
        self._o = reader.linear(f"{at}.self_attn", {"o_proj": hidden}, q)
        self._after_attention = reader.norm(f"{at}.post_attention_layernorm", hidden, post_eps)
        self._mlp_norm = reader.norm(f"{at}.pre_feedforward_layernorm", hidden)
        self._mlp = reader.mlp(f"{at}.mlp", hidden, shape.intermediate_size)
        self._after_mlp = reader.norm(f"{at}.post_feedforward_layernorm", hidden, post_eps)

    def __call__(self, x: Tensor, step: Step) -> Tensor:
        shape = self._shape
        together = self._qkv_gate(self._attention_norm(x))
        heads = together.view(x.shape[0], -1, shape.head_dim)
        turned = heads[:, : shape.heads + shape.kv_heads]
        turned.copy_(self._unit(turned))
        if self._rotated:
            rotate_(turned, step.cos, step.sin)
        q, window = together[:, : shape.q_width], shape.windows[self._index]
        kv = heads[:, shape.heads : shape.heads + 2 * shape.kv_heads]
        mixed = step.attend(self._index, q, kv, window=window, scale=self._scale)
        gate = together[:, -shape.q_width :].sigmoid()
        x = x + self._after_attention(self._o(mixed * gate))
        return x + self._after_mlp(self._mlp(self._mlp_norm(x)))
