"""The attention-only targets on the device against themselves on the CPU, in FP32 (no oracle here:
the machine with the device need not have transformers)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from native_engine.targets.hf_config import HfConfig
from native_engine.targets.load import build_target, load_target
from native_engine.targets.protocol import Target
from tests.engines.native.targets.runner import (
    VOCAB,
    Runner,
    assert_close,
    ragged_prompts,
    random_ids,
)

PUBLISHED = Path(__file__).parent / "published"
TINY: dict[str, Any] = {
    "vocab_size": VOCAB,
    "hidden_size": 96,
    "intermediate_size": 160,
    "num_hidden_layers": 6,
    "num_key_value_heads": 2,
    "num_attention_heads": 6,
    "head_dim": 32,
    "sliding_window": 16,
}


def tiny_config(name: str) -> HfConfig:
    """The published configuration `name`, small."""
    raw = json.loads((PUBLISHED / name / "config.json").read_text())
    raw.get("text_config", raw).update(TINY)
    return HfConfig(raw)


class WideWeights:
    """N(0, 0.3) matrices, gains about 1: the same on every device."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._random = torch.Generator().manual_seed(0)

    def has(self, name: str) -> bool:
        return True

    def take(self, name: str, *shape: int, dtype: torch.dtype | None = None) -> Tensor:
        drawn = torch.randn(shape, generator=self._random) * 0.3
        return (drawn + ("norm" in name)).to(self._device, dtype)


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["smollm2-135m", "qwen3-8b", "muse-glimmer-30b"])
def test_cuda_gives_what_the_cpu_gives(name: str) -> None:
    """Prefill, verify with a rejection, decode, 96 greedy steps of a ragged batch."""

    def run(device: str) -> tuple[Tensor, dict[int, list[int]]]:
        torch.manual_seed(1)
        target = build_target(tiny_config(name), WideWeights(torch.device(device)))
        ids, runner = random_ids(150), Runner(target, 3, 200)
        parts = [runner.feed({2: ids[:100], 0: ids[:7]})[2], runner.feed({2: ids[100:140]})[2]]
        runner.forward({2: random_ids(8), 0: random_ids(3)})
        runner.commit(2, [])
        runner.commit(0, [])
        parts += [runner.feed({2: ids[140:149]})[2], runner.feed({2: ids[149:]})[2]]
        return torch.cat(parts), Runner(target, 8, 200).greedy(ragged_prompts(8), 96)

    (ours, chosen), (expected, expected_tokens) = run("cuda"), run("cpu")
    assert_close(ours, expected)
    assert chosen == expected_tokens


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["smollm2-135m", "qwen3-8b", "muse-glimmer-30b"])
def test_published_shapes_run_with_dummy_weights_in_bf16(name: str) -> None:
    """Prefill in ragged chunks over the window, verify, decode; a sequence alone agrees."""
    target: Target = load_target(
        PUBLISHED / name, torch.bfloat16, torch.device("cuda"), load_format="dummy"
    )
    ids = torch.randint(0, target.vocab_size, (2500,)).tolist()
    among, alone = Runner(target, 4, 2560), Runner(target, 1, 2560)
    for i in range(0, 2500, 500):
        among.feed({3: ids[i : i + 500], 1: ids[i : i + 9]})
        alone.feed({0: ids[i : i + 500]})
    for rows in (8, 1):
        got = among.feed({3: ids[:rows], 1: ids[:4], 2: ids[:rows]})[3]
        assert torch.isfinite(got).all()
        # Row counts choose the matrix kernels, so BF16 agrees to its rounding only.
        assert_close(got, alone.feed({0: ids[:rows]})[0], 0.05)
