"""The hybrid target against transformers' own, in FP32."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
import torch

from native_engine.errors import ConfigError, WeightsError
from native_engine.targets.load import load_target
from native_engine.targets.qwen35 import Qwen35
from tests.engines.native.targets.tiny_qwen35 import (
    VOCAB,
    make_folder,
    make_seeing_folder,
    reference_greedy,
    reference_logits,
    rows_of,
    tiny_target,
)


def close(ours: torch.Tensor, theirs: torch.Tensor) -> bool:
    assert ours.shape == theirs.shape
    return bool((ours - theirs).abs().max() < 1e-4 * theirs.abs().max().clamp(min=1))


@pytest.mark.parametrize("rows", [1, 2, 3, 63, 64, 65, 150])
def test_a_prompt_in_one_pass(tmp_path: Path, rows: int) -> None:
    reference, target = make_folder(tmp_path), tiny_target(tmp_path)
    ids = torch.randint(0, VOCAB, (rows,))
    out = target.forward(rows_of({1: (0, ids.tolist())}), target.new_state(2, 200), taps=(-1, 2, 0))
    assert close(target.logits(out.hidden), reference_logits(reference, ids))
    with torch.inference_mode():
        hidden = reference(ids[None], output_hidden_states=True).hidden_states
    for tap, expected in zip(out.taps, (hidden[0], hidden[3], hidden[1]), strict=True):
        assert close(tap, expected[0])
    with pytest.raises(ConfigError, match=r"taps \[4\]: layers are 0 to 3"):
        target.forward(rows_of({0: (0, [1])}), target.new_state(2, 200), taps=(4,))


def test_chunks_tokens_and_verify_steps_of_ragged_sequences(tmp_path: Path) -> None:
    """Any cut of eight sequences into passes gives the logits of one pass over each."""
    reference, target = make_folder(tmp_path), tiny_target(tmp_path)
    draw = random.Random(3)
    texts = [[draw.randrange(VOCAB) for _ in range(draw.randrange(90, 230))] for _ in range(8)]
    expected = [reference_logits(reference, torch.tensor(text)) for text in texts]
    state, done = target.new_state(8, 230), [0] * 8
    while any(at < len(text) for at, text in zip(done, texts, strict=True)):
        live = [s for s in range(8) if done[s] < len(texts[s]) and draw.random() < 0.7]
        counts = {
            s: draw.choice([1, 1, 2, 5, 8, 17, 70, 100]) for s in draw.sample(live, len(live))
        }
        runs = {s: (done[s], texts[s][done[s] : done[s] + n]) for s, n in counts.items()}
        if not runs:
            continue
        rows = rows_of(runs)
        logits = target.logits(target.forward(rows, state).hidden)
        for slot, start, begin, end in rows.spans:
            assert close(logits[begin:end], expected[slot][start : start + end - begin])
            done[slot] = start + end - begin
            state.commit(slot, done[slot])


def test_one_token_and_k_tokens_after_transformers_own_cache(tmp_path: Path) -> None:
    reference, target = make_folder(tmp_path), tiny_target(tmp_path)
    ids = torch.randint(0, VOCAB, (80,))
    state, past, at = target.new_state(1, 100), None, 0
    for count in (40, 1, 1, 8, 1, 16, 13):
        piece = ids[at : at + count]
        with torch.inference_mode():
            theirs = reference(piece[None], cache=past, use_cache=True)
        past = theirs.cache
        ours = target.forward(rows_of({0: (at, piece.tolist())}), state)
        assert close(target.logits(ours.hidden), theirs.logits[0])
        at += count
        state.commit(0, at)


def speculate(target: Qwen35, prompts: list[list[int]], texts: list[list[int]], draft: int) -> None:
    """Decode `prompts` in one batch to `texts` with drafts that are right up to a random row."""
    draw = random.Random(len(prompts))
    state = target.new_state(len(prompts), max(map(len, prompts)) + len(texts[0]) + draft + 1)
    got: list[list[int]] = [[] for _ in prompts]
    held = [0] * len(prompts)
    while any(len(g) < len(t) for g, t in zip(got, texts, strict=True)):
        runs: dict[int, tuple[int, list[int]]] = {}
        drafts: dict[int, list[int]] = {}
        for slot, (prompt, text) in enumerate(zip(prompts, texts, strict=True)):
            if len(got[slot]) >= len(text):
                continue
            right = text[len(got[slot]) : len(got[slot]) + draw.randint(0, draft)]
            wrong = [draw.randrange(VOCAB) for _ in range(draw.randint(0, draft - len(right)))]
            drafts[slot] = right + wrong if held[slot] else []
            tokens = (prompt + got[slot])[held[slot] :] + drafts[slot]
            runs[slot] = (held[slot], tokens)
        rows = rows_of(runs)
        choice = target.logits(target.forward(rows, state).hidden).argmax(-1).tolist()
        for slot, start, _, end in rows.spans:
            proposed = drafts[slot]
            chosen = choice[end - len(proposed) - 1 : end]
            accepted = 0
            while accepted < len(proposed) and proposed[accepted] == chosen[accepted]:
                accepted += 1
            got[slot] += chosen[: accepted + 1]
            held[slot] = start + len(runs[slot][1]) - len(proposed) + accepted
            state.commit(slot, held[slot])
    for ours, theirs in zip(got, texts, strict=True):
        assert ours[: len(theirs)] == theirs


@pytest.mark.parametrize(
    "tokens", [96, pytest.param(512, marks=pytest.mark.slow)], ids=["96", "512"]
)
@pytest.mark.parametrize("batch", [1, 8])
def test_greedy_tokens_with_rejected_drafts(tmp_path: Path, batch: int, tokens: int) -> None:
    reference, target = make_folder(tmp_path, seed=batch), tiny_target(tmp_path)
    draw = random.Random(batch)
    prompts = [[draw.randrange(VOCAB) for _ in range(draw.randrange(3, 90))] for _ in range(batch)]
    texts = [reference_greedy(reference, prompt, tokens) for prompt in prompts]
    assert all(len(set(text)) > 5 for text in texts), "the oracle's texts must not collapse"
    speculate(target, prompts, texts, draft=0)
    speculate(target, prompts, texts, draft=7)


def test_names_of_the_published_class_and_of_tied_and_other_layer_orders(tmp_path: Path) -> None:
    ids = torch.randint(0, VOCAB, (50,))
    for name, reference in {
        "seeing": make_seeing_folder(tmp_path / "seeing"),
        "tied": make_folder(tmp_path / "tied", tie_word_embeddings=True),
        "published order": make_folder(tmp_path / "published order", layer_types=None),
    }.items():
        target = tiny_target(tmp_path / name)
        out = target.forward(rows_of({0: (0, ids.tolist())}), target.new_state(1, 64))
        assert close(target.logits(out.hidden), reference_logits(reference, ids)), name


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("hidden_act", "gelu"),
        ("attn_output_gate", False),
        ("mamba_ssm_dtype", "bfloat16"),
        ("layer_types", ["sliding_attention"] * 4),
        ("linear_num_value_heads", 5),
        ("rope_parameters", {"rope_type": "yarn", "rope_theta": 1e4}),
    ],
)
def test_a_variant_that_is_not_computed_is_refused_by_name(
    tmp_path: Path, key: str, value: object
) -> None:
    make_folder(tmp_path)
    path = tmp_path / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {key: value}))
    with pytest.raises(ConfigError, match="rope_type" if key == "rope_parameters" else key):
        tiny_target(tmp_path)


def test_a_misshapen_tensor_is_named(tmp_path: Path) -> None:
    make_folder(tmp_path)
    path = tmp_path / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"linear_num_value_heads": 8}))
    with pytest.raises(WeightsError, match=r"layers.0.linear_attn"):
        tiny_target(tmp_path)


def test_bf16_is_as_near_as_transformers_bf16(tmp_path: Path) -> None:
    """BF16 is no oracle: our error against FP32 is held to transformers' own, plus a half."""
    reference = make_folder(tmp_path)
    ids = torch.randint(0, VOCAB, (120,), generator=torch.Generator().manual_seed(2))
    exact = reference_logits(reference, ids)
    target = load_target(tmp_path, torch.bfloat16, torch.device("cpu"))
    out = target.forward(rows_of({0: (0, ids.tolist())}), target.new_state(1, 120))
    ours = target.logits(out.hidden)
    assert ours.dtype == torch.bfloat16
    rounded = reference_logits(type(reference).from_pretrained(tmp_path, dtype=ours.dtype), ids)
    allowed = (rounded.float() - exact).square().mean().sqrt()
    assert (ours.float() - exact).square().mean().sqrt() < 1.5 * allowed
