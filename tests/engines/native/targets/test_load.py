"""Which checkpoints load, what dummy weights are, and what each mistake is told."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM, MuseGlimmerForConditionalGeneration

from native_engine.errors import ConfigError, WeightsError
from native_engine.targets.hf_config import HfConfig
from native_engine.targets.load import build_target, load_target
from native_engine.targets.protocol import Rows
from native_engine.targets.source import RecordingSource
from tests.engines.native.targets.oracle import CPU, Oracle

PUBLISHED = Path(__file__).parent / "published"


def recorded(name: str) -> RecordingSource:
    source = RecordingSource(torch.bfloat16)
    target = build_target(HfConfig.from_folder(PUBLISHED / name), source)
    assert target.device.type == "meta"
    return source


@pytest.mark.parametrize(
    ("name", "total", "streamed"),
    [
        ("smollm2-135m", 134_515_008, 134_515_008),
        ("qwen3-8b", 8_190_735_360, 7_568_405_504),
        ("muse-glimmer-30b", 27_854_780_928, 26_509_949_440),
    ],
)
def test_published_shapes_have_the_published_parameter_counts(
    name: str, total: int, streamed: int
) -> None:
    """streamed: read in a decode step; an embedding that is no head is not."""
    source = recorded(name)
    assert source.parameters == total
    tables = [shape for name, shape in source.shapes.items() if "embed_tokens" in name]
    untied = "lm_head.weight" in source.shapes
    assert total - untied * tables[0][0] * tables[0][1] == streamed


@pytest.mark.parametrize("name", ["smollm2-135m", "qwen3-8b", "muse-glimmer-30b"])
def test_tensors_are_those_of_transformers(name: str) -> None:
    config = AutoConfig.from_pretrained(PUBLISHED / name)
    with torch.device("meta"):
        if name == "muse-glimmer-30b":
            config.vision_config.num_hidden_layers = 1
            config.vision_config.layer_types = ["full_attention"]
            model = MuseGlimmerForConditionalGeneration(config)
        else:
            model = AutoModelForCausalLM.from_config(config)
    sees = ("vision_tower", "vision_adapter", "vision_projection")
    expected = {
        tensor: tuple(value.shape)
        for tensor, value in model.named_parameters()
        if not any(part in tensor for part in sees)
    }
    assert recorded(name).shapes == expected


@pytest.mark.parametrize("name", ["llama", "llama-tied-mqa", "qwen3", "muse"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_dummy_weights_need_config_json_alone(
    tmp_path: Path, name: str, dtype: torch.dtype
) -> None:
    Oracle(name, tmp_path)
    for weights in tmp_path.glob("*.safetensors"):
        weights.unlink()
    ids = torch.arange(20)

    def logits(seed: int) -> torch.Tensor:
        target = load_target(tmp_path, dtype, CPU, "dummy", dummy_seed=seed)
        assert target.dtype == dtype
        state = target.new_state(1, 20)
        return target.logits(target.forward(Rows(ids, (0,), (0,), (20,)), state).hidden)

    assert torch.isfinite(logits(1)).all()
    assert torch.equal(logits(1), logits(1))
    assert not torch.equal(logits(1), logits(2))
    with pytest.raises(WeightsError, match=r"no \*.safetensors file"):
        load_target(tmp_path, dtype, CPU)


@pytest.mark.parametrize(
    ("name", "changes", "told"),
    [
        ("llama", {"model_type": "qwen33"}, "model_type: unknown name 'qwen33'.*'qwen3'"),
        ("llama", {"model_type": None}, "known: llama, muse_glimmer, qwen3"),
        ("llama", {"attention_bias": True}, "attention_bias=True: only False"),
        ("qwen3", {"attention_bias": True}, "attention_bias=True: only False"),
        ("llama", {"mlp_bias": True}, "mlp_bias=True"),
        ("llama", {"hidden_act": "gelu"}, "hidden_act='gelu': only 'silu'"),
        ("llama", {"rope_parameters": {"rope_type": "llama3", "factor": 8.0}}, "rope_type"),
        ("qwen3", {"rope_parameters": None, "rope_scaling": {"type": "yarn"}}, "type='yarn'"),
        ("llama", {"rope_parameters": {"partial_rotary_factor": 0.5}}, "partial_rotary_factor"),
        ("llama", {"rope_parameters": {"full_attention": {}}}, "only one RoPE for all layers"),
        ("llama", {"quantization_config": {"quant_method": "fp8"}}, "quantization_config"),
        ("llama", {"num_key_value_heads": 4}, "num_key_value_heads=4: must divide"),
        ("llama", {"hidden_size": "wide"}, "hidden_size='wide': a positive integer"),
        ("llama", {"rms_norm_eps": None}, "rms_norm_eps=None: a number"),
        ("qwen3", {"layer_types": ["full_attention"]}, "layer_types"),
        ("qwen3", {"layer_types": ["chunked_attention"] * 4}, "layer_types"),
        ("muse", {"quantization_config": {}}, "quantization_config"),
        ("muse", {"text_config": None}, "text_config: a JSON object"),
        ("muse", {"text_config.attention_bias": True}, "text_config attention_bias=True"),
        ("muse", {"text_config.tie_word_embeddings": True}, "tie_word_embeddings=True"),
        ("muse", {"text_config.hidden_activation": "gelu"}, "hidden_activation"),
        ("muse", {"text_config.layer_rope_theta": [1.0] * 6}, "layer_rope_theta=.*: 0 or 500000"),
    ],
)
def test_what_is_not_computed_is_refused_by_name(
    tmp_path: Path, name: str, changes: dict[str, Any], told: str
) -> None:
    Oracle(name, tmp_path)
    path = tmp_path / "config.json"
    raw = json.loads(path.read_text())
    for key, value in changes.items():
        *sections, last = key.split(".")
        (raw[sections[0]] if sections else raw)[last] = value
    path.write_text(json.dumps(raw))
    with pytest.raises(ConfigError, match=told):
        load_target(tmp_path, torch.float32, CPU)


def test_missing_and_misshapen_tensors_are_named(tmp_path: Path) -> None:
    Oracle("qwen3", tmp_path)
    path = tmp_path / "model.safetensors"
    tensors = load_file(path)
    gain = tensors.pop("model.layers.2.self_attn.k_norm.weight")
    save_file(tensors, path)
    with pytest.raises(WeightsError, match=r"no tensor 'model.layers.2.self_attn.k_norm.weight'"):
        load_target(tmp_path, torch.float32, CPU)
    save_file({**tensors, "model.layers.2.self_attn.k_norm.weight": gain[1:].clone()}, path)
    with pytest.raises(WeightsError, match=r"k_norm.weight: shape \(31,\), config.json says"):
        load_target(tmp_path, torch.float32, CPU)


def test_other_mistakes_are_told(tmp_path: Path) -> None:
    Oracle("llama", tmp_path)
    with pytest.raises(ConfigError, match="load format 'gguf': known: 'dummy', 'safetensors'"):
        load_target(tmp_path, torch.float32, CPU, "gguf")
    target = load_target(tmp_path, torch.float32, CPU)
    rows = Rows(torch.zeros(1, dtype=torch.int64), (0,), (0,), (1,))
    with pytest.raises(ConfigError, match=r"taps \[4\]: layers are 0 to 3"):
        target.forward(rows, target.new_state(1, 4), (4,))
    with pytest.raises(ConfigError, match=r"config\.json"):
        load_target(tmp_path / "nowhere", torch.float32, CPU)
