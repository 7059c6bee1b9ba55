"""A safetensors checkpoint into the tensors the forward pass wants: fused qkv and gate/up."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from native_engine.config import ModelConfig
from native_engine.errors import WeightsError
from native_engine.targets.source import open_safetensors


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
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise WeightsError(f"{folder}: no *.safetensors file")
    tensors: dict[str, Tensor] = {}
    for file in files:
        with open_safetensors(file) as handle:
            for name in handle.keys():  # noqa: SIM118  (not a dict)
                tensors[name] = handle.get_tensor(name).to(dtype)
    return _assemble(tensors, config)


def _assemble(tensors: dict[str, Tensor], config: ModelConfig) -> Weights:
    d, ff, hd = config.hidden_size, config.intermediate_size, config.head_dim
    q, kv = config.heads * hd, config.kv_heads * hd

    def take(name: str, *shape: int) -> Tensor:
        tensor = tensors.pop(name, None)
        if tensor is None:
            raise WeightsError(f"the checkpoint has no tensor {name!r}")
        if tuple(tensor.shape) != shape:
            raise WeightsError(f"{name}: shape {tuple(tensor.shape)}, config.json says {shape}")
        return tensor

    embedding = take("model.embed_tokens.weight", config.vocab_size, d)
    layers = []
    for i in range(config.layers):
        at = f"model.layers.{i}"
        attn = f"{at}.self_attn"
        layers.append(
            LayerWeights(
                input_norm=take(f"{at}.input_layernorm.weight", d),
                qkv=torch.cat(
                    [
                        take(f"{attn}.q_proj.weight", q, d),
                        take(f"{attn}.k_proj.weight", kv, d),
                        take(f"{attn}.v_proj.weight", kv, d),
                    ]
                ),
                o=take(f"{attn}.o_proj.weight", d, q),
                post_norm=take(f"{at}.post_attention_layernorm.weight", d),
                gate_up=torch.cat(
                    [
                        take(f"{at}.mlp.gate_proj.weight", ff, d),
                        take(f"{at}.mlp.up_proj.weight", ff, d),
                    ]
                ),
                down=take(f"{at}.mlp.down_proj.weight", d, ff),
            )
        )
    final_norm = take("model.norm.weight", d)
    head = embedding if config.tied_head else take("lm_head.weight", config.vocab_size, d)
    return Weights(embedding, tuple(layers), final_norm, head)
