"""Tiny random Qwen3.5 hybrids, saved by transformers, and transformers as the oracle."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import (
    Qwen3_5Config,
    Qwen3_5ForCausalLM,
    Qwen3_5ForConditionalGeneration,
    Qwen3_5TextConfig,
)

from native_engine.targets.load import load_target
from native_engine.targets.protocol import Rows
from native_engine.targets.qwen35 import Qwen35

VOCAB = 97
LAYER_TYPES = ["linear_attention", "full_attention", "linear_attention", "linear_attention"]


def text_fields(**changes: Any) -> dict[str, Any]:
    fields = {
        "vocab_size": VOCAB,
        "hidden_size": 48,
        "intermediate_size": 80,
        "num_hidden_layers": 4,
        "num_attention_heads": 6,
        "num_key_value_heads": 2,
        "head_dim": 32,
        "layer_types": LAYER_TYPES,
        "linear_num_key_heads": 2,
        "linear_num_value_heads": 6,
        "linear_key_head_dim": 16,
        "linear_value_head_dim": 8,
        "linear_conv_kernel_dim": 4,
        "max_position_embeddings": 2048,
        "rms_norm_eps": 1e-6,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 10000.0,
            "partial_rotary_factor": 0.25,
            "mrope_section": [2, 1, 1],
            "mrope_interleaved": True,
        },
        # Wide enough that texts do not collapse; at 0.3 transformers' own two paths (one pass, or
        # pieces on a cache) already differ by 3e-4 of the largest logit in FP32.
        "initializer_range": 0.1,
        "eos_token_id": None,
        "pad_token_id": 0,
    }
    return fields | changes


def make_folder(folder: Path, *, seed: int = 0, **changes: Any) -> Qwen3_5ForCausalLM:
    """Write a random FP32 text model in `folder`; the transformers model it was written from."""
    torch.manual_seed(seed)
    model = Qwen3_5ForCausalLM(Qwen3_5TextConfig(**text_fields(**changes))).eval().float()
    return _finish(model, folder)


def make_seeing_folder(folder: Path) -> Qwen3_5ForConditionalGeneration:
    """As published: vision tower, text model under `model.language_model`."""
    torch.manual_seed(1)
    vision = {"depth": 1, "hidden_size": 16, "intermediate_size": 16, "num_heads": 2}
    vision |= {"out_hidden_size": 48, "num_position_embeddings": 4}
    config = Qwen3_5Config(text_config=text_fields(), vision_config=vision)
    return _finish(Qwen3_5ForConditionalGeneration(config).eval().float(), folder)


def _finish(model: Any, folder: Path) -> Any:
    for name, parameter in model.named_parameters():
        if "norm" in name:
            centre = 1.0 if "linear_attn" in name else 0.0
            torch.nn.init.uniform_(parameter, centre - 0.5, centre + 0.5)
        elif "dt_bias" in name:
            torch.nn.init.uniform_(parameter, -4.0, 2.0)
    model.save_pretrained(folder)
    return model


def tiny_target(folder: Path) -> Qwen35:
    target = load_target(folder, torch.float32, torch.device("cpu"))
    assert isinstance(target, Qwen35)
    return target


def reference_logits(model: Any, ids: Tensor) -> Tensor:
    """`[rows, vocab]` of one sequence, from one pass without a cache."""
    with torch.inference_mode():
        logits: Tensor = model(ids[None]).logits[0]
    return logits


def reference_greedy(model: Any, prompt: list[int], count: int) -> list[int]:
    """transformers' own greedy generation, one token at a time on its cache."""
    ids = torch.tensor([prompt])
    with torch.inference_mode():
        # Without a mask `generate` would take token 0 for padding.
        out = model.generate(
            ids, attention_mask=torch.ones_like(ids), max_new_tokens=count, do_sample=False
        )
    tokens: list[int] = out[0, len(prompt) :].tolist()
    return tokens


def rows_of(runs: dict[int, tuple[int, list[int]]]) -> Rows:
    """Rows of one pass from {slot: (start, tokens)}."""
    ids = [token for _, tokens in runs.values() for token in tokens]
    return Rows(
        torch.tensor(ids),
        tuple(runs),
        tuple(start for start, _ in runs.values()),
        tuple(len(tokens) for _, tokens in runs.values()),
    )
