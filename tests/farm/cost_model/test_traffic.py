"""Bytes of a step against sums written out by hand from the shapes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

from farm.cost_model.traffic import (
    Traffic,
    component_of,
    drafter_traffic,
    target_tensors,
    target_traffic,
)
from native_engine.drafters.config import DrafterConfig
from settings.paths import checkout_root
from tests.engines.native.drafters import synthetic
from tests.engines.native.tiny import make_folder

PUBLISHED = checkout_root() / "tests/engines/native/targets/published"
HEAD = Traffic("lm_head", 1000.0, 77.0)


def by_name(found: list[Traffic]) -> dict[str, Traffic]:
    return {item.component: item for item in found}


@pytest.mark.parametrize(("dtype", "size"), [("bf16", 2), ("fp32", 4)])
@pytest.mark.parametrize("tied", [True, False])
def test_every_weight_of_the_file_is_read_once(
    tmp_path: Path, tied: bool, dtype: str, size: int
) -> None:
    make_folder(tmp_path, tied=tied)
    stored = load_file(tmp_path / "model.safetensors")
    tensors, head_is_embedding = target_tensors(tmp_path, dtype)
    assert head_is_embedding == tied and set(tensors) == set(stored)
    rows, context, kv = 5, 40, 2
    found = by_name(target_traffic(tensors, tied, rows, context, kv))
    numbers = sum(w.numel() for name, w in stored.items() if tied or "embed" not in name)
    embedded, cached = rows * 96, 3 * 2 * 2 * 16 * (context + rows)
    total = size * (numbers + embedded) + kv * cached
    assert sum(item.bytes for item in found.values()) == total
    assert found["down"].bytes == 3 * 96 * 160 * size
    assert found["gate_up"].flops == 2 * 3 * 2 * 96 * 160 * rows
    assert found["qkv"].bytes == 3 * (96 + 2 * 32) * 96 * size
    assert found["lm_head"].bytes == 97 * 96 * size and found["attention"].bytes == kv * cached
    many = by_name(target_traffic(tensors, tied, rows, context, kv, sequences=3))
    assert many["attention"].bytes == 3 * found["attention"].bytes
    assert many["down"] == Traffic("down", found["down"].bytes, 3 * found["down"].flops)


@pytest.mark.parametrize("model", sorted(path.name for path in PUBLISHED.iterdir()))
def test_every_tensor_of_the_published_targets_has_a_component(model: str) -> None:
    raw = json.loads((PUBLISHED / model / "config.json").read_text())
    tensors, _ = target_tensors(PUBLISHED / model, "fp8" if "fp8" in model else "bf16")
    components = {component_of(name) for name in tensors}
    assert "other" not in components and {"qkv", "o_proj", "gate_up", "down"} <= components
    hybrid = str(raw.get("model_type", "")).startswith("qwen3_5")
    assert ({"gdn_proj", "gdn_conv", "gdn_recurrence"} <= components) == hybrid


def layer_numbers(conv: bool) -> int:
    """A layer of `synthetic`'s backbone: 4 q, 2 kv heads of 8, hidden 32, MLP 48, groups of 8."""
    attention = 32 * 32 + 2 * 16 * 32 + 32 * 32 + 2 * 8
    kernels = 2 * (2 * 2 * 32 + 2 * 2 * 4 * 32) if conv else 0
    return attention + 3 * 32 * 48 + 2 * 32 + kernels


def test_dflash2() -> None:
    config = DrafterConfig.from_mapping(synthetic.DFLASH2)
    found = by_name(drafter_traffic(config, 100, 2, HEAD))
    fused = 2 * 32 * 32 + 32 + 32
    cached = 2 * (100 + 5) * 2 * 16
    embedded = 5 * 32
    assert (
        found["draft"].bytes
        == 2 * (fused + 2 * layer_numbers(conv=True) + cached + embedded) + HEAD.bytes
    )
    # Rank 6: one predecessor and four successors a slot, and the projection.
    assert found["selector"].bytes == 2 * (4 * 6 + 4 * 4 * 6 + 6 * 32)
    two = by_name(drafter_traffic(config, 100, 2, HEAD, sequences=2))
    weights = 2 * (fused + 2 * layer_numbers(conv=True)) + HEAD.bytes
    assert two["draft"].bytes - weights == 2 * (found["draft"].bytes - weights)
    assert two["draft"].flops == 2 * found["draft"].flops


def test_dspark_reads_its_second_table_for_every_slot() -> None:
    config = DrafterConfig.from_mapping(synthetic.DSPARK)
    found = by_name(drafter_traffic(config, 100, 4, HEAD))
    confidence = 32 + 6 + 1
    assert found["selector"].bytes == 4 * (4 * 6 + 4 * 61 * 6 + confidence)
    own = DrafterConfig.from_mapping(synthetic.DEEPSPEC)
    drafted = by_name(drafter_traffic(own, 10, 4, HEAD))["draft"]
    without = by_name(drafter_traffic(own, 10, 4, Traffic("lm_head", 0.0)))["draft"]
    assert drafted == without  # its own head: the target's is not read


@pytest.mark.parametrize("raw", [synthetic.DFLASH, synthetic.DFLASH2, synthetic.DSPARK])
def test_arithmetic_is_two_a_weight_and_row(raw: dict[str, Any]) -> None:
    config = DrafterConfig.from_mapping(raw)
    found = by_name(drafter_traffic(config, 10, 2, HEAD))
    block, slots = config.block_size, config.max_drafts
    least = 2 * block * 2 * (2 * 32 * 32 + 3 * 32 * 48) + 2 * slots * 61 * 32
    assert least < found["draft"].flops < 3 * least
