"""inspect-drafter: published names, checkpoint folders, and what is wrong with them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from tests.engines.native.drafters.synthetic import DFLASH2, write_checkpoint
from tests.farm.cli.conftest import Cli


@pytest.mark.parametrize(
    ("name", "parameters"),
    [("qwen3.8-27b-dflash2", 1_924_404_480), ("muse-glimmer-30b-dflash2", 2_772_159_744)],
)
def test_a_published_name_is_described_exactly(cli: Cli, name: str, parameters: int) -> None:
    ran = cli("inspect-drafter", name, "--json")
    (facts,) = ran.lines()
    assert ran.code == 0
    assert facts["parameters"] == parameters and facts["tensor_count"] == 81
    assert len(facts["tensors"]) == 81 and facts["bytes_bf16"] == 2 * parameters
    text = cli("inspect-drafter", name).out
    for line in (f"parameters: {parameters:,}", "tensor count: 81", "layers.*.attention_conv"):
        assert line in text


def test_a_folder_is_compared_with_its_config(cli: Cli, tmp_path: Path) -> None:
    write_checkpoint(tmp_path, DFLASH2)
    ran = cli("inspect-drafter", str(tmp_path), "--json")
    assert ran.code == 0
    assert ran.lines()[0]["taps"] == [0, 5] and ran.lines()[0]["draft_tokens"] == 4
    file = tmp_path / "model.safetensors"
    tensors = load_file(file)
    tensors["norm.bias"] = tensors.pop("norm.weight")
    tensors["fc.weight"] = tensors["fc.weight"][:, :-1].contiguous()
    save_file(tensors, file)
    ran = cli("inspect-drafter", str(tmp_path))
    assert ran.code == 2 and ran.out == ""
    for problem in ("missing norm.weight [32]", "unexpected norm.bias", "fc.weight is [32, 63]"):
        assert problem in ran.err
    assert ran.err.startswith("specfarm: ") and ran.err.count("\n") == 1


def test_mistakes_are_named_with_the_nearest_remedy(cli: Cli, tmp_path: Path) -> None:
    ran = cli("inspect-drafter", "qwen3.8-27b-dflash3", "--json")
    assert ran.code == 2 and json.loads(ran.out)["event"] == "error"
    assert "did you mean 'qwen3.8-27b-dflash2'?" in ran.err and "qwen3-8b-dspark" in ran.err
    assert cli("inspect-drafter", str(tmp_path)).code == 2
    (tmp_path / "config.json").write_text(json.dumps({"architectures": ["LlamaForCausalLM"]}))
    ran = cli("inspect-drafter", str(tmp_path))
    assert ran.code == 2 and "known: DFlash2DraftModel" in ran.err
