"""A safetensors checkpoint into the tensors the forward pass wants: fused qkv and gate/up."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from native_engine.config import ModelConfig
from native_engine.targets.source import SafetensorsSource, stacked


@dataclass(frozen=True)
class LayerWeights:
    """`[out, in]` matrices and `[hidden]` norm gains of one decoder layer."""

    input_norm: Tensor
    qkv: Tensor
    o: Tensor
    post_norm: Tensor
    gate_up: Tensor
    down: Tensor


@dataclass(frozen=True)
class Weights:
    """`head` is `embedding` itself where the model ties them."""

    embedding: Tensor
    layers: tuple[LayerWeights, ...]
    final_norm: Tensor
    head: Tensor


def load_weights(folder: Path, config: ModelConfig, dtype: torch.dtype) -> Weights:
    """Read every `*.safetensors` of a Hugging Face folder, cast to `dtype`.

    Raises WeightsError naming the broken file, or the tensor that is missing or misshapen."""
    source = SafetensorsSource(folder, dtype, torch.device("cpu"))
    table = (config.vocab_size, config.hidden_size)
    embedding = source.take("model.embed_tokens.weight", *table)
    return Weights(
        embedding,
        tuple(_layer(source, f"model.layers.{i}", config) for i in range(config.layers)),
        source.take("model.norm.weight", config.hidden_size),
        embedding if config.tied_head else source.take("lm_head.weight", *table),
    )


def _layer(source: SafetensorsSource, at: str, config: ModelConfig) -> LayerWeights:
    d, ff, q, kv = config.hidden_size, config.intermediate_size, config.q_width, config.kv_width
    attention = {"q_proj": q, "k_proj": kv, "v_proj": kv}
    return LayerWeights(
        input_norm=source.take(f"{at}.input_layernorm.weight", d),
        qkv=stacked(source, f"{at}.self_attn", attention, d),
        o=source.take(f"{at}.self_attn.o_proj.weight", d, q),
        post_norm=source.take(f"{at}.post_attention_layernorm.weight", d),
        gate_up=stacked(source, f"{at}.mlp", {"gate_proj": ff, "up_proj": ff}, d),
        down=source.take(f"{at}.mlp.down_proj.weight", d, ff),
    )
