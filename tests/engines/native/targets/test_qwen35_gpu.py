"""The hybrid target on CUDA: what the CPU computes, and BF16 and FP8 close to FP32."""

from __future__ import annotations

import random
import zlib
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from native_engine.targets.fp8 import E4M3
from native_engine.targets.hf_config import HfConfig
from native_engine.targets.load import build_target
from native_engine.targets.qwen35 import Qwen35
from native_engine.targets.source import DummySource
from tests.engines.native.targets.test_qwen35_published import FP8, SEEING, TEXT
from tests.engines.native.targets.tiny_qwen35 import VOCAB, rows_of, text_fields

pytestmark = pytest.mark.gpu
TINY = TEXT | text_fields() | {"model_type": "qwen3_5_text"}
COUNTS = [1, 3, 8, 100]


class NamedSource:
    """Random tensors that depend on their name alone, whatever the device."""

    def __init__(self, dtype: torch.dtype, device: str) -> None:
        self._dtype, self._device = dtype, device

    def has(self, name: str) -> bool:
        return True

    def take(self, name: str, *shape: int, dtype: torch.dtype | None = None) -> Tensor:
        generator = torch.Generator().manual_seed(zlib.crc32(name.encode()))
        wide = torch.randn(shape, generator=generator).mul_(0.1)
        if name.endswith("scale_inv"):
            wide = wide.abs().mul_(0.1)
        if dtype == E4M3:
            wide = wide.mul_(100)
        return wide.to(torch.bfloat16).to(self._device, dtype or self._dtype)


def target_on(device: str, dtype: torch.dtype = torch.float32, **config: object) -> Qwen35:
    target = build_target(HfConfig(TINY | config), NamedSource(dtype, device))
    assert isinstance(target, Qwen35)
    return target


def decode(target: Qwen35) -> tuple[Tensor, Tensor]:
    """Random ragged passes with partial acceptance: every row's logits, then the state."""
    draw, held, logits = random.Random(1), [0] * 4, []
    state = target.new_state(4, 800)
    with torch.inference_mode():
        for _ in range(20):
            runs = {
                slot: (held[slot], [draw.randrange(VOCAB) for _ in range(draw.choice(COUNTS))])
                for slot in draw.sample(range(4), 3)
            }
            rows = rows_of(runs)
            rows = replace(rows, ids=rows.ids.to(target.device))
            logits.append(target.logits(target.forward(rows, state).hidden).float().cpu())
            for slot, (start, tokens) in runs.items():
                count = len(tokens)
                held[slot] = start + (count if count > 64 else draw.randint(0, count))
                state.commit(slot, held[slot])
    return torch.cat(logits), state.recurrent.cpu()


@pytest.mark.parametrize("config", [{}, {"quantization_config": FP8}], ids=["plain", "fp8"])
def test_cuda_computes_what_the_cpu_does(config: dict[str, Any]) -> None:
    logits, state = decode(target_on("cpu", **config))
    ours, our_state = decode(target_on("cuda", **config))
    # An activation that lies between two e4m3 values may round the other way.
    tolerance = 1e-4 if not config else 0.05
    assert (ours - logits).abs().max() < tolerance * logits.abs().max()
    assert (our_state - state).abs().max() < tolerance * state.abs().max()


def test_bf16_is_close_to_fp32() -> None:
    logits, _ = decode(target_on("cuda"))
    ours, _ = decode(target_on("cuda", torch.bfloat16))
    assert (ours - logits).abs().mean() < 0.05 * logits.abs().mean()


@pytest.mark.parametrize("config", [{}, {"quantization_config": FP8}], ids=["bf16", "fp8"])
def test_the_published_shape_runs_with_dummy_weights(config: dict[str, object]) -> None:
    """A prompt, a verify step of which five rows are kept, a token: alone and among others."""
    source = DummySource(torch.bfloat16, torch.device("cuda"), gain=0.0)
    with torch.inference_mode():
        target = build_target(HfConfig(SEEING | config), source)
        state = target.new_state(4, 256)
        draw, start = random.Random(2), 0
        for count, kept in ((100, 100), (8, 5), (1, 1)):
            tokens = [draw.randrange(target.vocab_size) for _ in range(count)]
            among = {slot: (start, tokens) for slot in (1, 2, 3)}
            results = []
            for runs in ({0: (start, tokens)}, among):
                rows = rows_of(runs)
                rows = replace(rows, ids=rows.ids.to(target.device))
                results.append(target.logits(target.forward(rows, state).hidden).float())
                for slot in runs:
                    state.commit(slot, start + kept)
            alone, together = results[0], results[1][-count:]
            assert torch.isfinite(alone).all()
            # Row counts choose the matrix kernels, so BF16 agrees to its rounding only.
            assert (alone - together).square().mean() < 0.1**2 * alone.square().mean()
            start += kept
