"""The forward pass against transformers' own, in FP32."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from native_engine.config import EngineConfig, LinearKnobs, PrefillKnobs
from native_engine.llama import rms_norm
from tests.engines.native.tiny import VOCAB, make_folder, tiny_engine


@pytest.mark.parametrize("backend", ["plain", "packed"])
@pytest.mark.parametrize(
    ("heads", "kv_heads", "tied"), [(6, 2, True), (4, 4, False), (3, 1, True), (6, 3, False)]
)
def test_logits_agree_with_transformers(
    tmp_path: Path, heads: int, kv_heads: int, tied: bool, backend: str
) -> None:
    reference = make_folder(tmp_path, heads=heads, kv_heads=kv_heads, tied=tied)
    knobs = EngineConfig(linear=LinearKnobs(fp32=backend), prefill=PrefillKnobs(chunk_tokens=64))
    decoder = tiny_engine(tmp_path, knobs=knobs).decoder
    ids = torch.randint(0, VOCAB, (150,))
    with torch.no_grad():
        expected = reference(ids[None]).logits[0]
    got: list[torch.Tensor] = []
    last = decoder.start(ids.tolist(), 0, lambda at, rows: got.append(rows.clone()))
    assert last is not None
    ours = torch.cat([*got, last])
    assert ours.shape == expected.shape
    assert (ours - expected).abs().max() < 1e-4 * expected.abs().max().clamp(min=1)


@pytest.mark.parametrize("rows", [1, 2, 5, 8, 32, 33, 60])
def test_blocks_of_any_size_after_a_prefix_agree(tmp_path: Path, rows: int) -> None:
    reference = make_folder(tmp_path)
    engine = tiny_engine(tmp_path)
    ids = torch.randint(0, VOCAB, (70 + rows,))
    engine.decoder.start(ids[:70].tolist())
    with torch.inference_mode():
        ours = engine.model.logits(engine.model.forward(ids[70:], engine.decoder.cache).hidden)
        expected = reference(ids[None]).logits[0, 70:]
    assert (ours - expected).abs().max() < 1e-4 * expected.abs().max().clamp(min=1)


def test_rejected_rows_leave_no_trace(tmp_path: Path) -> None:
    make_folder(tmp_path)
    engine = tiny_engine(tmp_path)
    prompt, right = list(range(2, 30)), torch.tensor([5, 6, 7])
    model, cache = engine.model, engine.decoder.cache

    def after(wrong: list[int]) -> torch.Tensor:
        engine.decoder.start(prompt)
        with torch.inference_mode():
            if wrong:
                model.forward(torch.tensor(wrong), cache)
                cache.truncate(len(prompt))
            return model.logits(model.forward(right, cache).hidden)

    assert torch.equal(after([]), after([90, 91, 92, 93, 94]))


def test_rms_norm_is_rms_norm() -> None:
    x, gain = torch.randn(5, 64) * 30 + 4, torch.rand(64) + 0.5
    expected = torch.nn.functional.rms_norm(x, (64,), gain, 1e-5)
    assert torch.allclose(rms_norm(x, gain.repeat(2), 1e-5), expected, atol=1e-5, rtol=1e-5)


def test_the_cache_refuses_more_than_it_holds(tmp_path: Path) -> None:
    make_folder(tmp_path)
    cache = tiny_engine(tmp_path, tokens=16).decoder.cache
    with pytest.raises(ValueError, match="16 tokens, 17 asked"):
        cache.extend(17)
