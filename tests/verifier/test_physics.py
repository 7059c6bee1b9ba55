"""Least times against figures worked out by hand, and honest times that must pass."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from settings.errors import SettingError
from settings.hardware import HARDWARE, Ceiling, ceiling
from verifier.errors import VerifierError
from verifier.physics import PhysicalBound, TimedAnswer, faster_than_hardware
from verifier.target_size import COMPRESSIBLE, TargetSize, target_size

# 100 ms a read of the weights, 1 ms a row, five tokens a step at most.
BOUND = PhysicalBound(TargetSize(1e9, 1e6), Ceiling(1e10, 1e9, 0.0), tokens_per_step=5)


def answer(
    total_s: float, first_s: float = 0.2, tokens: int = 11, prompt: int = 150
) -> TimedAnswer:
    return TimedAnswer("r", prompt, 1, tokens, first_s, total_s)


def test_the_bound_by_hand() -> None:
    assert BOUND.step_s == pytest.approx(0.1)
    # 10 tokens: two steps of five; 11: three. 450 tokens: 90 steps are longer than 450 rows.
    assert [BOUND.decode_s(n) for n in (0, 1, 5, 10, 11)] == pytest.approx([0, 0.1, 0.1, 0.2, 0.3])
    # Arithmetic binds where a step may commit many: 1,000 tokens are 1 s of rows, 5 steps 0.5 s.
    assert replace(BOUND, tokens_per_step=200).decode_s(1000) == pytest.approx(1.0)
    # A prompt of 150 tokens is 150 rows; one of 3 is one read of the weights.
    assert BOUND.answer_s(150, 1) == pytest.approx(0.15)
    assert BOUND.answer_s(3, 11) == pytest.approx(0.1 + 0.2)
    assert BOUND.answer_s(150, 0) == 0.0
    cached = replace(BOUND, ceiling=Ceiling(1e10, 1e9, 4e8))
    assert cached.step_s == pytest.approx(0.06)
    assert replace(BOUND, ceiling=Ceiling(1e10, 1e9, 4e9)).step_s == 0.0


def test_a_whole_answer_below_the_bound_is_named() -> None:
    assert faster_than_hardware([answer(0.4)], BOUND) is None
    found = faster_than_hardware([answer(0.4), answer(0.349)], BOUND)
    assert found is not None
    assert (found.tokens, found.seconds, found.least_s) == (11, 0.349, pytest.approx(0.35))
    assert "request r: 11 tokens in 349.00 ms" in found.sentence()
    assert "at least 350.00 ms" in found.sentence()


def test_tokens_at_once_after_an_honest_prefill_are_found() -> None:
    """The prefill's time hides nothing: decoding is held to the bound on its own."""
    replayed = [answer(1.001, first_s=1.0)] * 3
    found = faster_than_hardware(replayed, BOUND)
    assert found is not None and found.what == "decoding of 3 answers"
    assert (found.tokens, found.least_s) == (30, pytest.approx(0.6))


def test_one_event_read_late_is_forgiven_by_the_others() -> None:
    late = answer(1.0, first_s=0.9)
    assert faster_than_hardware([late, answer(1.0), answer(1.0)], BOUND) is None
    assert faster_than_hardware([late], BOUND) is not None


@pytest.mark.parametrize("seconds", [math.nan, -math.inf])
def test_a_time_that_is_no_number_fails_closed(seconds: float) -> None:
    assert faster_than_hardware([answer(seconds)], BOUND) is not None
    assert faster_than_hardware([answer(1.0, first_s=math.nan)], BOUND) is not None


def test_ceilings() -> None:
    assert ceiling("h200") == Ceiling(4.8e12, 989e12, 50e6)
    one, four = ceiling("cpu"), ceiling("cpu", 4)
    assert four.bytes_per_s == 4 * one.bytes_per_s and four.flops == 4 * one.flops
    for name in HARDWARE:
        assert ceiling(name).bytes_per_s > 0
    with pytest.raises(SettingError, match="not known"):
        ceiling("abacus")


def checkpoint(folder: Path, config: dict[str, object], **shapes: tuple[int, ...]) -> Path:
    tensors = {
        name.replace("__", "."): np.zeros(shape, np.float16) for name, shape in shapes.items()
    }
    save_file(tensors, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def test_only_what_every_step_reads_is_counted(tmp_path: Path) -> None:
    shapes = {
        "model__embed_tokens__weight": (100, 8),
        "model__layers__0__mlp__up_proj__weight": (16, 8),
        "model__layers__0__input_layernorm__weight": (8,),
        "visual__blocks__0__weight": (64, 8),
        "mtp__layers__0__weight": (64, 8),
    }
    tied = target_size(checkpoint(tmp_path, {"tie_word_embeddings": True}, **shapes), "bf16")
    assert tied.step_bytes == pytest.approx((800 + 128 + 8) * 2 * COMPRESSIBLE)
    assert tied.token_flops == 2 * (800 + 128)
    # Untied: the table is looked up, not read, and the head is another tensor.
    untied = target_size(checkpoint(tmp_path, {}, **shapes, lm_head__weight=(100, 8)), "bf16")
    assert untied.step_bytes == pytest.approx(tied.step_bytes)
    fp8 = target_size(tmp_path, "fp8")
    assert fp8.step_bytes == pytest.approx(untied.step_bytes / 2)
    # FP32 twins read the same stored bits.
    assert target_size(tmp_path, "fp32") == untied


def test_a_converted_checkpoint_knows_no_more_than_its_source(tmp_path: Path) -> None:
    shapes = {"model__layers__0__weight": (64, 64), "other": (64, 64)}
    folder = checkpoint(tmp_path, {}, **shapes)
    assert target_size(folder, "bf16", source_bytes=1000).step_bytes == pytest.approx(500)
    assert target_size(folder, "bf16", source_bytes=10**9) == target_size(folder, "bf16")


def test_a_token_meets_only_the_experts_it_is_sent_to(tmp_path: Path) -> None:
    shapes = {f"model__layers__0__mlp__experts__{n}__up__weight": (16, 8) for n in range(8)}
    config = {"text_config": {"num_experts": 8, "num_experts_per_tok": 2}}
    found = target_size(checkpoint(tmp_path, config, **shapes), "bf16")
    assert found.step_bytes == pytest.approx(2 * 128 * 2 * COMPRESSIBLE)
    assert found.token_flops == pytest.approx(2 * 2 * 128)
    # Not said how many: none counts, rather than all.
    assert target_size(checkpoint(tmp_path, {}, **shapes), "bf16").step_bytes == 0.0


def test_a_broken_checkpoint_is_an_error_not_a_bound_of_nothing(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"\x00\x00")
    with pytest.raises(VerifierError, match="not a safetensors file"):
        target_size(tmp_path, "bf16")
