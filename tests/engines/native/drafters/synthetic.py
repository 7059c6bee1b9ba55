"""Checkpoints that hold what a config.json asks for: random and small, or headers alone."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from native_engine.drafters.config import DrafterConfig
from native_engine.drafters.describe import describe

VOCAB, HIDDEN, TARGET_LAYERS = 61, 32, 8

_BACKBONE: dict[str, Any] = {
    "num_hidden_layers": 2,
    "hidden_size": HIDDEN,
    "intermediate_size": 48,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "vocab_size": VOCAB,
    "rms_norm_eps": 1e-5,
    "num_target_layers": TARGET_LAYERS,
}
DFLASH = _BACKBONE | {
    "architectures": ["DFlashDraftModel"],
    "layer_types": ["sliding_attention", "full_attention"],
    "sliding_window": 9,
    "rope_theta": 1e4,
    "block_size": 6,
    "dflash_config": {"target_layer_ids": [1, 4, 6], "mask_token_id": 60},
}
DFLASH2 = _BACKBONE | {
    "architectures": ["DFlash2DraftModel"],
    "layer_types": ["sliding_attention", "sliding_attention"],
    "sliding_window": 11,
    "is_causal": False,
    "rope_parameters": {"rope_type": "default", "rope_theta": 5e3},
    "dflash_config": {
        "block_size": 5,
        "mask_token_id": 60,
        "target_layer_ids": [0, 5],
        "conv_kernel_size": 2,
        "conv_group_size": 8,
        "selector_rank": 6,
        "selector_top_k": 4,
    },
}
MUSE = DFLASH2 | {"output_multiplier": 0.3, "final_logit_softcapping": 2.0}
DSPARK = _BACKBONE | {
    "architectures": ["DSparkDraftModel"],
    "layer_types": ["full_attention", "full_attention"],
    "block_size": 4,
    "rope_parameters": {
        "rope_type": "yarn",
        "rope_theta": 1e4,
        "factor": 8.0,
        "original_max_position_embeddings": 64,
        "beta_fast": 32.0,
        "beta_slow": 1.0,
    },
    "dflash_config": {
        "mask_token_id": 60,
        "target_layer_ids": [2, 5],
        "markov_rank": 6,
        "markov_head_type": "vanilla",
        "enable_confidence_head": True,
        "confidence_head_with_markov": True,
    },
}
DEEPSPEC = _BACKBONE | {
    "architectures": ["Qwen3DSparkModel"],
    "rope_theta": 1e4,
    "block_size": 5,
    "target_layer_ids": [-1, 3, 7],
    "mask_token_id": 60,
    "markov_rank": 6,
    "markov_head_type": "rnn",
    "enable_confidence_head": True,
    "confidence_head_with_markov": True,
    "confidence_temperatures": [0.5, 1.0, 1.5, 2.0, 2.5],
}
GATED = DSPARK | {"dflash_config": DSPARK["dflash_config"] | {"markov_head_type": "gated"}}


def random_weights(raw: Mapping[str, Any], seed: int = 0) -> dict[str, Tensor]:
    """FP32 tensors of every name and shape `raw` needs, wide enough that argmax has a margin."""
    generator = torch.Generator().manual_seed(seed)
    weights: dict[str, Tensor] = {}
    for name, shape in describe(DrafterConfig.from_mapping(raw)).shapes.items():
        noise = torch.randn(shape, generator=generator)
        if "norm" in name:
            weights[name] = 1 + 0.3 * noise
        elif name.endswith("base_kernel"):
            weights[name] = 0.4 * noise
            weights[name][:, 0] += 1
        elif "codebook" in name or "embed" in name or "markov_w1" in name:
            weights[name] = noise
        else:
            weights[name] = noise / math.sqrt(shape[-1])
    return weights


def write_checkpoint(folder: Path, raw: Mapping[str, Any], seed: int = 0) -> dict[str, Tensor]:
    """config.json and model.safetensors in `folder`; the weights written."""
    weights = random_weights(raw, seed)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(raw))
    save_file(weights, str(folder / "model.safetensors"))
    return weights


def write_headers(folder: Path, shapes: Mapping[str, tuple[int, ...]]) -> None:
    """A BF16 safetensors file of these names and shapes whose payload is a hole in the file."""
    header: dict[str, Any] = {}
    end = 0
    for name, shape in shapes.items():
        begin, end = end, end + 2 * math.prod(shape)
        header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    with (folder / "model.safetensors").open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + end)
