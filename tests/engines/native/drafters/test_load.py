"""Loading: what is wrong with a checkpoint is named, and what fits no target is refused."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from native_engine.drafters.block_drafter import BlockDrafter
from native_engine.drafters.describe import checked_folder, describe
from native_engine.drafters.load import load_drafter
from native_engine.drafters.options import DrafterOptions
from native_engine.drafters.protocol import Ask, BatchDrafter
from native_engine.drafters.published import published
from native_engine.errors import ConfigError, WeightsError
from native_engine.targets.protocol import Rows
from tests.engines.native.drafters.fake_target import FakeTarget
from tests.engines.native.drafters.synthetic import (
    DEEPSPEC,
    DFLASH,
    DFLASH2,
    DSPARK,
    write_checkpoint,
    write_headers,
)

CPU = torch.device("cpu")


def load(folder: Path, **options: Any) -> BlockDrafter:
    return load_drafter(folder, FakeTarget(), torch.float32, CPU, options=DrafterOptions(**options))


def prompt(drafter: BatchDrafter, ids: list[int], slot: int = 0) -> None:
    drafter.reset(slot)
    rows = Rows(torch.tensor(ids[:-1]), (slot,), (0,), (len(ids) - 1,))
    drafter.observe(rows, FakeTarget().tap(1, range(len(ids) - 1), len(drafter.taps)))


@pytest.mark.parametrize("raw", [DFLASH, DFLASH2, DSPARK, DEEPSPEC])
def test_each_wrong_tensor_is_named(tmp_path: Path, raw: Mapping[str, Any]) -> None:
    write_checkpoint(tmp_path, raw)
    file = tmp_path / "model.safetensors"
    tensors = load_file(file)
    tensors["fc.wight"] = tensors.pop("fc.weight")
    name = "layers.1.mlp.up_proj.weight"
    tensors[name] = tensors[name][:-1].contiguous()
    save_file(tensors, file)
    with pytest.raises(WeightsError) as caught:
        load(tmp_path)
    message = str(caught.value)
    assert "missing fc.weight [32, " in message and "unexpected fc.wight" in message
    assert f"{name} is [47, 32], config.json says [48, 32]" in message
    assert message.count(";") == 2


def test_a_folder_without_weights_or_with_a_broken_file_says_so(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(DFLASH))
    with pytest.raises(WeightsError, match=r"no \*\.safetensors"):
        load(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"not a header")
    with pytest.raises(WeightsError, match="download it again"):
        load(tmp_path)


def test_the_full_published_shapes_load_by_their_headers(tmp_path: Path) -> None:
    config = published("qwen3.8-27b-dflash2").config
    raw = {
        **DFLASH2,
        "num_hidden_layers": 5,
        "hidden_size": 5120,
        "intermediate_size": 17408,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "vocab_size": 248320,
        "layer_types": ["sliding_attention"] * 5,
        "num_target_layers": 64,
    }
    raw["dflash_config"] = {
        "block_size": 8,
        "mask_token_id": 248070,
        "target_layer_ids": [5, 19, 33, 47, 61],
        "conv_kernel_size": 2,
        "conv_group_size": 16,
        "selector_rank": 256,
        "selector_top_k": 16,
    }
    (tmp_path / "config.json").write_text(json.dumps(raw))
    write_headers(tmp_path, describe(config).shapes)
    assert checked_folder(tmp_path).parameters == 1_924_404_480


def test_a_pair_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, DFLASH)
    target = FakeTarget()
    target.vocab_size += 1
    with pytest.raises(ConfigError, match="vocab_size=61, its target's 62"):
        load_drafter(tmp_path, target, torch.float32, CPU)
    target = FakeTarget()
    target.layers = 6
    with pytest.raises(ConfigError, match="target has 6 layers"):
        load_drafter(tmp_path, target, torch.float32, CPU)
    with pytest.raises(ConfigError, match="hidden_size=5120, its target's 32"):
        load_drafter("qwen3.8-27b-dflash2", FakeTarget(), torch.float32, CPU, "dummy")
    with pytest.raises(ConfigError, match="known: 'dummy', 'safetensors'"):
        load_drafter(tmp_path, FakeTarget(), torch.float32, CPU, "gguf")


def test_options_are_checked_by_name(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, DFLASH)
    with pytest.raises(ConfigError, match="draft_tokens=6: a block of 6 drafts at most 5"):
        load(tmp_path, draft_tokens=6)
    with pytest.raises(ConfigError, match="known: none, threshold, throughput"):
        load(tmp_path, schedule="fast")
    plain = {**DSPARK, "dflash_config": {**DSPARK["dflash_config"]}}
    plain["dflash_config"]["enable_confidence_head"] = False
    write_checkpoint(tmp_path / "plain", plain)
    with pytest.raises(ConfigError, match="no confidence head"):
        load(tmp_path / "plain", schedule="threshold")


@pytest.mark.parametrize("raw", [DFLASH, DFLASH2, DSPARK])
def test_fewer_draft_tokens_than_the_block_are_its_first(
    tmp_path: Path, raw: Mapping[str, Any]
) -> None:
    write_checkpoint(tmp_path, raw)
    ids = [3, 14, 15, 9, 26]
    drafts = []
    for tokens in (0, 2):
        drafter = load(tmp_path, draft_tokens=tokens)
        drafter.open(1, 40)
        prompt(drafter, ids)
        drafts += drafter.propose([Ask(0, ids, 99)]).tokens
    assert drafts[1] == drafts[0][:2] and len(drafts[0]) > 2


def test_a_slot_may_step_back_but_never_skip(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, DFLASH2)
    drafter, target = load(tmp_path), FakeTarget()
    with pytest.raises(ValueError, match="call open"):
        drafter.reset(0)
    drafter.open(2, 40)
    ids = [3, 14, 15, 9, 26, 5, 35]
    prompt(drafter, ids)
    first = drafter.propose([Ask(0, ids, 9)]).tokens
    drafter.observe(Rows(torch.tensor(ids[3:6]), (0,), (3,), (3,)), target.tap(1, range(3, 6), 2))
    assert drafter.propose([Ask(0, ids, 9)]).tokens == first
    with pytest.raises(ValueError, match="slot 0: rows from 8 follow 6"):
        drafter.observe(Rows(torch.tensor([1]), (0,), (8,), (1,)), target.tap(1, [8], 2))
    with pytest.raises(ValueError, match="slot 1: anchor at 6, 0 rows observed"):
        drafter.propose([Ask(1, ids, 9)])
    assert drafter.propose([]).tokens == []


def test_a_slot_used_again_holds_no_trace(tmp_path: Path) -> None:
    """Not even of rows that were NaN, beside a longer sequence whose keys reach over them."""
    write_checkpoint(tmp_path, DFLASH)
    drafter, target = load(tmp_path), FakeTarget()
    drafter.open(2, 60)
    longer, ids = [*range(3, 43)], [3, 14, 15, 9]
    prompt(drafter, longer, slot=1)
    prompt(drafter, ids)
    asks = [Ask(0, ids, 9), Ask(1, longer, 9)]
    fresh = drafter.hidden(asks)
    drafter.reset(0, 1)
    nan = [tap.fill_(torch.nan) for tap in target.tap(1, range(1, 40), 3)]
    drafter.observe(Rows(torch.tensor(longer[1:]), (0,), (1,), (39,)), nan)
    prompt(drafter, ids)
    assert torch.equal(drafter.hidden(asks), fresh)


def test_dummy_weights_draft_without_a_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(DSPARK))
    drafter = load_drafter(tmp_path, FakeTarget(), torch.bfloat16, CPU, "dummy")
    drafter.open(1, 40)
    prompt(drafter, [1, 2, 3])
    assert len(drafter.propose([Ask(0, [1, 2, 3], 9)]).tokens[0]) == 4
