"""A Llama in one GGUF file -> a Hugging Face folder with BF16 safetensors.

The dequantised values, rounded once to BF16, *are* the target: nothing else is claimed of them.
Names, permutation and formats after llama.cpp's `convert_hf_to_gguf.py`, undone here.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gguf import GGUFReader, dequantize
from numpy.typing import NDArray
from safetensors.torch import save_file

from settings.errors import ProvisionError
from settings.provision import Progress

_LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_TOP = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}


def hf_name(name: str) -> str:
    """`blk.3.attn_q.weight` -> `model.layers.3.self_attn.q_proj.weight`.

    Raises:
        ProvisionError: not a tensor of a plain Llama.
    """
    stem = name.removesuffix(".weight")
    if stem in _TOP:
        return f"{_TOP[stem]}.weight"
    layer = re.fullmatch(r"blk\.(\d+)\.(\w+)", stem)
    if layer is None or layer[2] not in _LAYER:
        raise ProvisionError(f"GGUF tensor {name!r} has no place in a Llama", "Use another file")
    return f"model.layers.{layer[1]}.{_LAYER[layer[2]]}.weight"


def undo_rope_permutation(weight: NDArray[Any], heads: int) -> NDArray[Any]:
    """Rows of q or k from llama.cpp's order (rotated pairs adjacent) to HF's (halves apart).

    Args:
        weight: (heads * head_dim, width).
    """
    rows, width = weight.shape
    pairs = weight.reshape(heads, rows // heads // 2, 2, width)
    return np.ascontiguousarray(pairs.swapaxes(1, 2).reshape(rows, width))


def llama_config(reader: Any) -> dict[str, Any]:
    """config.json of the file's model, from its metadata."""

    def value(key: str) -> Any:
        field = reader.fields.get(key)
        if field is None:
            raise ProvisionError(f"GGUF metadata lacks {key}", "Use another file")
        return field.contents()

    if value("general.architecture") != "llama":
        raise ProvisionError(
            f"GGUF architecture {value('general.architecture')!r} is not llama", "Use a Llama file"
        )
    heads, width = value("llama.attention.head_count"), value("llama.embedding_length")
    theta = float(value("llama.rope.freq_base"))
    names = {tensor.name for tensor in reader.tensors}
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": value("llama.vocab_size"),
        "hidden_size": width,
        "intermediate_size": value("llama.feed_forward_length"),
        "num_hidden_layers": value("llama.block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": value("llama.attention.head_count_kv"),
        "head_dim": width // heads,
        "hidden_act": "silu",
        "max_position_embeddings": value("llama.context_length"),
        # Stored as float32: back to the decimal that was meant.
        "rms_norm_eps": float(f"{value('llama.attention.layer_norm_rms_epsilon'):.6g}"),
        "rope_parameters": {"rope_type": "default", "rope_theta": theta},
        "rope_theta": theta,
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": "output.weight" not in names,
        "bos_token_id": value("tokenizer.ggml.bos_token_id"),
        "eos_token_id": value("tokenizer.ggml.eos_token_id"),
        "pad_token_id": value("tokenizer.ggml.padding_token_id"),
        "dtype": "bfloat16",
    }


def state_dict(reader: Any, config: dict[str, Any]) -> dict[str, torch.Tensor]:
    """All tensors under their HF names, BF16; a tied head has no tensor of its own."""
    heads = {
        "q_proj": config["num_attention_heads"],
        "k_proj": config["num_key_value_heads"],
    }
    weights = {}
    for tensor in reader.tensors:
        name = hf_name(tensor.name)
        values = dequantize(tensor.data, tensor.tensor_type)
        projection = name.split(".")[-2]
        if projection in heads:
            values = undo_rope_permutation(values, heads[projection])
        weights[name] = torch.from_numpy(np.array(values, dtype=np.float32)).bfloat16()
    return weights


def write_checkpoint(gguf_file: Path, folder: Path, progress: Progress) -> None:
    """Write config, weights, tokenizer, chat template and generation config into `folder`."""
    reader = GGUFReader(gguf_file)
    config = llama_config(reader)
    progress(f"converting {gguf_file.name} to BF16 safetensors")
    save_file(state_dict(reader, config), folder / "model.safetensors", metadata={"format": "pt"})
    _write_json(folder / "config.json", config)
    generation = {key: config[key] for key in ("bos_token_id", "eos_token_id", "pad_token_id")}
    _write_json(folder / "generation_config.json", generation | {"do_sample": False})
    progress("converting its tokenizer")
    _write_tokenizer(gguf_file, folder, config)


def _write_tokenizer(gguf_file: Path, folder: Path, config: dict[str, Any]) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(str(gguf_file.parent), gguf_file=gguf_file.name)
    tokenizer.save_pretrained(str(folder))
    path = folder / "tokenizer_config.json"
    written = json.loads(path.read_text())
    template = folder / "chat_template.jinja"
    if template.is_file():
        # Kept inside the JSON as well, where tools older than the .jinja file look for it.
        written["chat_template"] = template.read_text()
    if not written.get("chat_template"):
        raise ProvisionError(f"{gguf_file.name} carries no chat template", "Use an instruct model")
    for machine_detail in ("is_local", "local_files_only"):
        written.pop(machine_detail, None)
    written["tokenizer_class"] = "PreTrainedTokenizerFast"
    written["model_max_length"] = config["max_position_embeddings"]
    _write_json(path, written)


def _write_json(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
