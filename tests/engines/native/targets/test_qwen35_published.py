"""The published Qwen3.8-27B, described without its weights: tensors, parameters, bytes, state."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from native_engine.targets.hf_config import HfConfig
from native_engine.targets.load import build_target
from native_engine.targets.qwen35 import Qwen35
from native_engine.targets.source import RecordingSource

PUBLISHED = Path(__file__).parent / "published"
SEEING: dict[str, Any] = json.loads((PUBLISHED / "qwen3.8-27b" / "config.json").read_text())
TEXT: dict[str, Any] = SEEING["text_config"]
QUANTISED: dict[str, Any] = json.loads((PUBLISHED / "qwen3.8-27b-fp8" / "config.json").read_text())
FP8: dict[str, Any] = QUANTISED["quantization_config"]


class SizingSource(RecordingSource):
    """Also keeps the bytes asked for."""

    def __init__(self) -> None:
        super().__init__(torch.bfloat16)
        self.sizes: dict[str, int] = {}

    def take(self, name: str, *shape: int, dtype: torch.dtype | None = None) -> Tensor:
        tensor = super().take(name, *shape, dtype=dtype)
        self.sizes[name] = tensor.numel() * tensor.element_size()
        return tensor


@pytest.mark.parametrize(("config", "prefix"), [(SEEING, "model.language_model"), (TEXT, "model")])
def test_tensors_and_parameters(config: dict[str, Any], prefix: str) -> None:
    source = RecordingSource(torch.bfloat16)
    build_target(HfConfig(config), source)
    assert len(source.shapes) == 851
    layers = {n: s for n, s in source.shapes.items() if n.startswith(f"{prefix}.layers.")}
    others = {f"{prefix}.embed_tokens.weight", f"{prefix}.norm.weight", "lm_head.weight"}
    assert set(source.shapes) - set(layers) == others
    assert math.prod(source.shapes["lm_head.weight"]) == 1_271_398_400
    matrices = sum(math.prod(s) for s in layers.values() if len(s) == 2)
    assert matrices == 24_350_556_160
    assert source.parameters == 26_895_998_464


def test_fp8_bytes() -> None:
    source = SizingSource()
    build_target(HfConfig(SEEING | {"quantization_config": FP8}), source)
    scales = {n: s for n, s in source.sizes.items() if n.endswith("weight_scale_inv")}
    assert len(scales) == 48 * 6 + 16 * 7
    kept = 48 * 2 * 48 * 5120
    assert sum(source.sizes[n.removesuffix("_scale_inv")] for n in scales) == 24_350_556_160 - kept
    assert sum(scales.values()) == 4 * (24_350_556_160 - kept) // 128**2


def test_state_of_one_sequence() -> None:
    target = build_target(HfConfig(SEEING), RecordingSource(torch.bfloat16))
    assert isinstance(target, Qwen35)
    state = target.new_state(1, 1000)
    assert state.recurrent.numel() * 4 == 150_994_944
    assert state.conv.numel() * 2 == 2_949_120
    assert state.kv.data.numel() * 2 == 65_536 * 1000
