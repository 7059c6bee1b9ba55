"""Tiny random targets written by transformers, transformers as the oracle, and a plain runner."""

from __future__ import annotations

from collections.abc import Sequence
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
from native_engine.targets.protocol import Rows, Target

CPU = torch.device("cpu")
VOCAB, WINDOW = 97, 16

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


def _llama(**changes: Any) -> nn.Module:
    return LlamaForCausalLM(LlamaConfig(**{**_SHAPE, **changes}))


def _qwen3(**changes: Any) -> nn.Module:
    return Qwen3ForCausalLM(Qwen3Config(**{**_SHAPE, "head_dim": 32, **changes}))


def _muse() -> nn.Module:
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


TINY = {
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


class Runner:
    """Sequences in the slots of one target, by hand: what a batch decoder does."""

    def __init__(self, target: Target, slots: int, capacity: int) -> None:
        self.target, self.state = target, target.new_state(slots, capacity)
        self.tokens: list[list[int]] = [[] for _ in range(slots)]

    @torch.inference_mode()
    def forward(self, pieces: dict[int, list[int]]) -> dict[int, Tensor]:
        """Logits of each slot's new rows, uncommitted, `[rows, vocab]` on the CPU."""
        ids = [token for piece in pieces.values() for token in piece]
        rows = Rows(
            torch.tensor(ids, device=self.target.device),
            tuple(pieces),
            tuple(len(self.tokens[slot]) for slot in pieces),
            tuple(len(piece) for piece in pieces.values()),
        )
        logits = self.target.logits(self.target.forward(rows, self.state).hidden).float().cpu()
        return {span.slot: logits[span.begin : span.end] for span in rows.spans}

    def commit(self, slot: int, accepted: Sequence[int]) -> None:
        self.tokens[slot] += accepted
        self.state.commit(slot, len(self.tokens[slot]))

    def feed(self, pieces: dict[int, list[int]]) -> dict[int, Tensor]:
        """`forward`, and every row committed."""
        logits = self.forward(pieces)
        for slot, piece in pieces.items():
            self.commit(slot, piece)
        return logits

    def greedy(self, prompts: dict[int, list[int]], steps: int) -> dict[int, list[int]]:
        """`steps` tokens for each slot, one a step."""
        logits = self.feed(prompts)
        chosen: dict[int, list[int]] = {slot: [] for slot in prompts}
        for _ in range(steps):
            step = {slot: [int(rows[-1].argmax())] for slot, rows in logits.items()}
            for slot, piece in step.items():
                chosen[slot] += piece
            logits = self.feed(step)
        return chosen


def random_ids(count: int) -> list[int]:
    return torch.randint(0, VOCAB, (count,)).tolist()


def ragged_prompts(count: int, longest: int = 60) -> dict[int, list[int]]:
    """Prompts of all lengths for slots in no order."""
    slots = torch.randperm(count).tolist()
    return {slot: random_ids(1 + (37 * i + 5) % longest) for i, slot in enumerate(slots)}


def assert_close(ours: Tensor, expected: Tensor, tolerance: float = 1e-4) -> None:
    assert ours.shape == expected.shape
    worst = (ours.double() - expected.double()).abs().max()
    assert worst < tolerance * expected.abs().max().clamp(min=1), f"{worst} off"
