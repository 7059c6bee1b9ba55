"""Tiny random Llama folders and transformers as the oracle."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM

from native_engine.config import EngineConfig
from native_engine.engine import Engine, load_engine

VOCAB = 97
CHAT = (
    "{% for m in messages %}{{ m['role'] + ':' + m['content'] + eos_token }}{% endfor %}"
    "{% if add_generation_prompt %}{{ 'assistant:' }}{% endif %}"
)


def make_folder(
    folder: Path, *, kv_heads: int = 2, tied: bool = True, heads: int = 6, seed: int = 0
) -> LlamaForCausalLM:
    """Write a random FP32 model in `folder`; the transformers model it was written from."""
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=VOCAB,
        hidden_size=heads * 16,
        intermediate_size=160,
        num_hidden_layers=3,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        max_position_embeddings=1024,
        rms_norm_eps=1e-5,
        rope_theta=10000.0,
        tie_word_embeddings=tied,
        eos_token_id=1,
        bos_token_id=0,
        # Wide enough weights that argmax is decided by a margin and text does not collapse at once.
        initializer_range=0.3,
    )
    model = LlamaForCausalLM(config).eval().float()
    for name, parameter in model.named_parameters():
        if "norm" in name:
            torch.nn.init.uniform_(parameter, 0.5, 1.5)
    config.save_pretrained(folder)
    state = {k: v.contiguous() for k, v in model.state_dict().items()}
    if tied:
        state.pop("lm_head.weight", None)
    save_file(state, str(folder / "model.safetensors"))
    model.generation_config.eos_token_id = None
    model.generation_config.pad_token_id = 0
    return model


def add_tokenizer(folder: Path) -> None:
    """A character tokenizer of VOCAB symbols with a chat template."""
    symbols = ["<s>", "</s>"] + [chr(c) for c in range(32, 127)]
    tokenizer = Tokenizer(models.WordLevel({s: i for i, s in enumerate(symbols)}, unk_token="<s>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    tokenizer.decoder = decoders.Fuse()
    tokenizer.add_special_tokens(["<s>", "</s>"])
    tokenizer.save(str(folder / "tokenizer.json"))

    (folder / "tokenizer_config.json").write_text(
        json.dumps(
            {
                "tokenizer_class": "PreTrainedTokenizerFast",
                "eos_token": "</s>",
                "bos_token": "<s>",
                "chat_template": CHAT,
            }
        )
    )


def tiny_engine(
    folder: Path, *, speculation: bool = True, knobs: EngineConfig | None = None, tokens: int = 640
) -> Engine:
    return load_engine(folder, knobs or EngineConfig(), "fp32", tokens, speculation)


def reference_greedy(model: LlamaForCausalLM, prompt: list[int], count: int) -> list[int]:
    """transformers' own greedy generation, end token ignored."""
    with torch.no_grad():
        out = model.generate(
            torch.tensor([prompt]), max_new_tokens=count, do_sample=False, use_cache=True
        )
    return out[0, len(prompt) :].tolist()
