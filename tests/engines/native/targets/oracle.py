"""Tiny random targets written by transformers, and transformers as the oracle."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    MuseGlimmerConfig,
    MuseGlimmerForConditionalGeneration,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from native_engine.targets.load import load_target
from native_engine.targets.protocol import Target
from tests.engines.native.targets.runner import VOCAB

CPU = torch.device("cpu")
WINDOW = 16

_SHAPE: dict[str, Any] = {
    "vocab_size": VOCAB,
    "hidden_size": 96,
    "intermediate_size": 160,
    "num_hidden_layers": 4,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "max_position_embeddings": 2048,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": False,
    # Wide enough weights that argmax is decided by a margin and text does not collapse at once.
    "initializer_range": 0.3,
    "eos_token_id": None,
    "bos_token_id": None,
    "pad_token_id": None,
}


def _llama(**changes: Any) -> Any:
    return LlamaForCausalLM(LlamaConfig(**{**_SHAPE, **changes}))


def _qwen3(**changes: Any) -> Any:
    return Qwen3ForCausalLM(Qwen3Config(**{**_SHAPE, "head_dim": 32, **changes}))


def _muse() -> Any:
    text = {
        **_SHAPE,
        "num_hidden_layers": 6,
        "head_dim": 32,
        "sliding_window": WINDOW,
        "output_multiplier": 3.0,
        "final_logit_softcapping": 20.0,
        "rope_parameters": {"rope_type": "default", "rope_theta": 5e5},
    }
    vision = {
        "hidden_size": 32,
        "intermediate_size": 32,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "patch_size": 2,
        "pos_emb_height": 4,
        "pos_emb_width": 4,
    }
    config = MuseGlimmerConfig(
        text_config=text, vision_config=vision, out_hidden_size=128, projector_hidden_size=32
    )
    return MuseGlimmerForConditionalGeneration(config)


TINY: dict[str, Callable[[], Any]] = {
    "llama": lambda: _llama(rope_theta=1e4),
    "llama-tied-mqa": lambda: _llama(num_key_value_heads=1, tie_word_embeddings=True),
    "qwen3": lambda: _qwen3(rope_theta=1e6),
    "qwen3-sliding": lambda: _qwen3(
        use_sliding_window=True, sliding_window=WINDOW, max_window_layers=1
    ),
    "muse": _muse,
}


class Oracle:
    """A random FP32 model of transformers, saved in `folder` as it saves itself."""

    def __init__(self, name: str, folder: Path, seed: int = 0) -> None:
        torch.manual_seed(seed)
        self.model: Any = TINY[name]().eval().float()
        for parameter_name, parameter in self.model.named_parameters():
            if "norm" in parameter_name:
                nn.init.uniform_(parameter, 0.5, 1.5)
        self.model.save_pretrained(folder)
        self.folder = folder

    def target(self, dtype: torch.dtype = torch.float32, device: torch.device = CPU) -> Target:
        return load_target(self.folder, dtype, device)

    @torch.no_grad()
    def logits(self, ids: Sequence[int]) -> Tensor:
        """`[tokens, vocab]` of one forward pass without a cache."""
        logits: Tensor = self.model(input_ids=torch.tensor([list(ids)]), use_cache=False).logits[0]
        return logits

    @torch.no_grad()
    def hidden_states(self, ids: Sequence[int]) -> list[Tensor]:
        """The embedding's output, then each layer's but the last (which comes normed)."""
        out = self.model(
            input_ids=torch.tensor([list(ids)]), use_cache=False, output_hidden_states=True
        )
        return [states[0] for states in out.hidden_states[:-1]]

    @torch.no_grad()
    def greedy(self, prompt: Sequence[int], count: int) -> list[int]:
        """transformers' own cached generation."""
        out = self.model.generate(
            torch.tensor([list(prompt)]), max_new_tokens=count, do_sample=False, use_cache=True
        )
        tokens: list[int] = out[0, len(prompt) :].tolist()
        return tokens
