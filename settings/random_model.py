"""A small Llama with seeded random weights and a byte-level tokenizer: for tests, never a target.

Written without transformers, so that a test that needs a model folder pays no import for it.
"""

from __future__ import annotations

import json
import string
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from settings.errors import ProvisionError

SPECIAL_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def write_random_llama(config_dir: Path, seed: int, folder: Path) -> None:
    """Write config.json, BF16 model.safetensors, the tokenizer and generation_config.json.

    Args:
        config_dir: holds config.json of a Llama with `vocab_size` between 259 and 512.
        seed: of the weights, drawn N(0, `initializer_range`); norm weights N(1, 0.1), so that an
            engine which forgets one is caught.

    Raises:
        ProvisionError: no config.json, or not a Llama of that vocabulary.
    """
    config_file = config_dir / "config.json"
    if not config_file.is_file():
        raise ProvisionError(f"{config_file} does not exist", "checkpoint.config names its folder")
    config = json.loads(config_file.read_text())
    vocab = config.get("vocab_size")
    if config.get("model_type") != "llama" or not isinstance(vocab, int) or not 259 <= vocab <= 512:
        raise ProvisionError(
            f"{config_file}: random weights need model_type llama and vocab_size 259..512",
            "Change config.json",
        )
    config |= {"architectures": ["LlamaForCausalLM"], "dtype": "bfloat16"}
    _write_json(folder / "config.json", config)
    save_file(_weights(config, seed), folder / "model.safetensors", metadata={"format": "pt"})
    byte_level_tokenizer(vocab).save(str(folder / "tokenizer.json"))
    tokenizer_config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "<|im_start|>",
        "eos_token": "<|im_end|>",
        "pad_token": "<|im_end|>",
        "unk_token": "<|endoftext|>",
        "model_max_length": config["max_position_embeddings"],
        "clean_up_tokenization_spaces": False,
        "chat_template": CHAT_TEMPLATE,
    }
    _write_json(folder / "tokenizer_config.json", tokenizer_config)
    generation = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 2, "do_sample": False}
    _write_json(folder / "generation_config.json", generation)


def byte_level_tokenizer(vocab_size: int) -> Tokenizer:
    """Byte-level BPE: three special tokens (ids 0-2), 256 bytes, then letter pairs; no unknowns."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    letters = "Ġ" + "etaoinshrdlucmf" + string.digits
    pairs = [(a, b) for a in letters for b in letters if b != "Ġ"]
    merges = pairs[: vocab_size - len(SPECIAL_TOKENS) - len(alphabet)]
    tokens = [*SPECIAL_TOKENS, *alphabet, *(a + b for a, b in merges)]
    bpe = models.BPE(vocab={token: i for i, token in enumerate(tokens)}, merges=merges)
    tokenizer = Tokenizer(bpe)
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(token, special=True) for token in SPECIAL_TOKENS])
    return tokenizer


def _weights(config: dict[str, Any], seed: int) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    width, inner = config["hidden_size"], config["intermediate_size"]
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    head = config.get("head_dim") or width // heads
    scale = float(config.get("initializer_range", 0.02))

    def matrix(rows: int, columns: int) -> torch.Tensor:
        return torch.randn(rows, columns, generator=generator).mul_(scale).bfloat16()

    def norm() -> torch.Tensor:
        return (1 + 0.1 * torch.randn(width, generator=generator)).bfloat16()

    weights = {"model.embed_tokens.weight": matrix(config["vocab_size"], width)}
    for i in range(config["num_hidden_layers"]):
        layer = f"model.layers.{i}."
        weights |= {
            f"{layer}input_layernorm.weight": norm(),
            f"{layer}self_attn.q_proj.weight": matrix(heads * head, width),
            f"{layer}self_attn.k_proj.weight": matrix(kv_heads * head, width),
            f"{layer}self_attn.v_proj.weight": matrix(kv_heads * head, width),
            f"{layer}self_attn.o_proj.weight": matrix(width, heads * head),
            f"{layer}post_attention_layernorm.weight": norm(),
            f"{layer}mlp.gate_proj.weight": matrix(inner, width),
            f"{layer}mlp.up_proj.weight": matrix(inner, width),
            f"{layer}mlp.down_proj.weight": matrix(width, inner),
        }
    weights["model.norm.weight"] = norm()
    if not config.get("tie_word_embeddings", False):
        weights["lm_head.weight"] = matrix(config["vocab_size"], width)
    return weights


def _write_json(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n")
