"""Configuration and checkpoints: what is read, and what each mistake is told."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from native_engine.config import EngineConfig, ModelConfig
from native_engine.drafter import make_drafter
from native_engine.engine import load_engine
from native_engine.errors import ConfigError, WeightsError
from native_engine.server.__main__ import TREE, main, parse_args
from tests.engines.native.tiny import make_folder


def engine_config(tmp_path: Path, text: str) -> EngineConfig:
    path = tmp_path / "engine.toml"
    path.write_text(text)
    return EngineConfig.from_file(path)


def test_the_shipped_engine_toml_is_valid_and_states_every_knob() -> None:
    config = EngineConfig.from_file(TREE / "engine.toml")
    assert config.linear.bf16 == "packed"
    make_drafter(config)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[linears]\n", "did you mean 'linear'"),
        ("[speculation]\ndraft_token = 3\n", "did you mean 'draft_tokens'"),
        ("[speculation]\ndraft_tokens = 'x'\n", "draft_tokens='x': int needed"),
        ("[speculation]\ndraft_tokens = true\n", "draft_tokens=True: int needed"),
        ("[speculation]\ndraft_tokens = 0\n", "draft_tokens must be at least 1"),
        ("[speculation]\nverify = 'tree'\n", "known: 'chain'"),
        ("[prefill]\nchunk_tokens = 0\n", "chunk_tokens must be at least 1"),
        ("linear = 3\n", "a table is needed"),
        ("[linear\n", "engine.toml"),
    ],
)
def test_mistakes_in_engine_toml_are_named(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(ConfigError) as error:
        engine_config(tmp_path, text)
    assert told in str(error.value)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[speculation]\ndrafter = 'ngrams'\n", "did you mean 'ngram'"),
        ("[drafters.ngrm]\nmin_n = 1\n", "did you mean 'ngram'"),
        ("[drafters.ngram]\nmaxn = 1\n", "did you mean 'max_n'"),
        ("[linear]\nfp32 = 'pack'\n", "did you mean 'packed'"),
    ],
)
def test_mistakes_in_names_are_found_in_every_arm(tmp_path: Path, text: str, told: str) -> None:
    make_folder(tmp_path)
    with pytest.raises(ConfigError) as error:
        load_engine(tmp_path, engine_config(tmp_path, text), "fp32", 64, speculation=False)
    assert told in str(error.value)


@pytest.mark.parametrize(
    "change",
    [
        {"hidden_act": "gelu"},
        {"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e4}},
        {"attention_bias": True},
        {"quantization_config": {"quant_method": "fp8"}},
        {"model_type": "qwen2"},
        {"num_key_value_heads": 4},
        {"vocab_size": "many"},
    ],
)
def test_what_is_not_computed_is_refused(tmp_path: Path, change: dict[str, object]) -> None:
    make_folder(tmp_path)
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(ConfigError, match=next(iter(change)).split("_")[0]):
        ModelConfig.from_folder(tmp_path)


def test_end_tokens_come_from_both_files(tmp_path: Path) -> None:
    make_folder(tmp_path)
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": [5, 9]}')
    assert ModelConfig.from_folder(tmp_path).eos_token_ids == (1, 5, 9)


def test_a_missing_or_misshapen_tensor_is_named(tmp_path: Path) -> None:
    make_folder(tmp_path)
    file = str(tmp_path / "model.safetensors")
    tensors = load_file(file)
    name = "model.layers.1.mlp.down_proj.weight"
    save_file({**tensors, name: torch.zeros(3, 3)}, file)
    with pytest.raises(WeightsError, match="down_proj"):
        load_engine(tmp_path, EngineConfig(), "fp32", 64)
    del tensors[name]
    save_file(tensors, file)
    with pytest.raises(WeightsError, match="down_proj"):
        load_engine(tmp_path, EngineConfig(), "fp32", 64)


def test_launch_flags(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert parse_args(["--model-dir", "x"]).host == "127.0.0.1"
    with pytest.raises(SystemExit):
        parse_args(["--model-dir", "x", "--max-running-requests", "0"])
    assert main(["--model-dir", str(tmp_path)]) == 2
    assert "config.json" in capsys.readouterr().err
    make_folder(tmp_path)
    ar_with_speculation = ["--arm", "ar", "--speculation", "on", "--dtype", "fp32"]
    assert main(["--model-dir", str(tmp_path), *ar_with_speculation]) == 2
    assert "contradicts" in capsys.readouterr().err
