"""Parallel drafters on the single-sequence path: tokens and counts against transformers and the
batch path, the drafter's state against its equations over transformers' own hidden states."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from native_engine.batching.batch_engine import BatchOptions, load_batch_engine
from native_engine.config import EngineConfig, LinearKnobs, PrefillKnobs, SpeculationKnobs
from native_engine.drafters.protocol import Ask
from native_engine.engine import Engine, load_engine
from native_engine.errors import ConfigError, NativeEngineError, WeightsError
from native_engine.requests import GenerateRequest, GenerateResult
from native_tools.component_times import draft_times
from tests.engines.native.batching.full_forward import full_forward_greedy
from tests.engines.native.batching.harness import ask, scheduling
from tests.engines.native.drafters import synthetic
from tests.engines.native.drafters.reference import Reference
from tests.engines.native.tiny import VOCAB, make_folder, reference_greedy

LAYERS, HIDDEN, CHUNK = 3, 96, 9
KINDS = {"dflash": synthetic.DFLASH2, "dspark": synthetic.DSPARK}
TAPS = [-1, 0, 1]


def write_drafter(folder: Path, raw: Mapping[str, Any], **changes: Any) -> tuple[Path, Any, Any]:
    """Folder, config and weights of a random drafter for `tiny`'s target."""
    own = {"hidden_size": HIDDEN, "vocab_size": VOCAB, "num_target_layers": LAYERS, **changes}
    own["dflash_config"] = raw["dflash_config"] | {
        "mask_token_id": VOCAB - 1,
        "target_layer_ids": TAPS,
    }
    own = {**raw, **own}
    return folder, own, synthetic.write_checkpoint(folder, own)


def knobs_of(name: str, **options: Any) -> EngineConfig:
    return EngineConfig(
        prefill=PrefillKnobs(CHUNK, 4),
        speculation=SpeculationKnobs(name, 7),
        drafters={"ngram": {"max_n": 2}, name: options},
    )


def single(folder: Path, drafter: Path | None, knobs: EngineConfig, **more: Any) -> Engine:
    where = None if drafter is None else str(drafter)
    return load_engine(folder, knobs, "fp32", 160, draft_model_dir=where, **more)


def batch_options(folder: Path, drafter: Path | None) -> BatchOptions:
    return BatchOptions(
        model_dir=folder,
        dtype="fp32",
        device="cpu",
        load_format="safetensors",
        slots=1,
        max_total_tokens=160,
        speculation=True,
        prefix_reuse=False,
        draft_model_dir=None if drafter is None else str(drafter),
        root=folder,
    )


def prompt_of(length: int) -> tuple[int, ...]:
    return tuple((17 * i * i + 5 * i + length) % (VOCAB - 3) + 2 for i in range(length))


@torch.no_grad()
def layer_outputs(model: Any, ids: list[int]) -> list[Tensor]:
    """Transformers' embedding output, then each layer's, `[len(ids), hidden]`."""
    found: list[Tensor] = []
    hooks = [
        layer.register_forward_hook(lambda module, args, out: found.append(out))
        for layer in model.model.layers
    ]
    try:
        model(torch.tensor([ids]))
    finally:
        for hook in hooks:
            hook.remove()
    outputs = [(out[0] if isinstance(out, tuple) else out).view(len(ids), -1) for out in found]
    return [model.model.embed_tokens(torch.tensor(ids)), *outputs]


@pytest.mark.parametrize("rows", [1, 3, 40])
def test_taps_are_the_outputs_of_the_layers(tmp_path: Path, rows: int) -> None:
    model = make_folder(tmp_path)
    engine = load_engine(tmp_path, EngineConfig(), "fp32", 160)
    ids = list(prompt_of(20 + rows))
    engine.decoder.start(ids[:20])
    with torch.inference_mode():
        taps = (-1, 0, 2)
        hidden, kept = engine.model.forward(torch.tensor(ids[20:]), engine.decoder.cache, taps)
    expected = layer_outputs(model, ids)
    assert hidden is kept[-1] and len(kept) == 3
    for tap, ours in zip(taps, kept, strict=True):
        theirs = expected[tap + 1][20:]
        assert (ours - theirs).abs().max() < 1e-5 * theirs.abs().max()


@pytest.mark.parametrize("name", KINDS)
def test_tokens_are_transformers_and_counts_the_batch_paths(tmp_path: Path, name: str) -> None:
    """Prompts around every border of a chunk, answers of 1 to 20 tokens, one after the other."""
    model = make_folder(tmp_path / "target")
    folder = tmp_path / "target"
    drafter, _, _ = write_drafter(tmp_path / name, KINDS[name])
    knobs = knobs_of(name)
    engine = single(folder, drafter, knobs)
    lengths = [1, 2, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK - 1, 2 * CHUNK, 2 * CHUNK + 1, 31, 40]
    requests = [
        GenerateRequest(f"r{i}", prompt_of(lengths[i % len(lengths)] + i // 10), 1 + i % 20)
        for i in range(40)
    ]
    drafted = 0
    with scheduling(load_batch_engine(batch_options(folder, drafter), knobs)) as scheduler:
        for request in requests:
            ours, theirs = engine.run(request), ask(scheduler, request).result()
            expected = full_forward_greedy(model, request.prompt_ids, request.max_new_tokens)
            assert ours.output_ids == theirs.output_ids == expected
            counts = (theirs.steps, theirs.drafted, theirs.accepted)
            assert (ours.steps, ours.drafted, ours.accepted) == counts
            drafted += ours.drafted
    assert drafted > 300 and engine.decoder.times.drafted == drafted


class Checked:
    """Around an engine's drafter: its hidden states are compared with the equations over
    transformers' hidden states, its guesses replaced by the truth with every fourth broken."""

    def __init__(self, engine: Engine, model: Any, raw: Any, weights: Any) -> None:
        table = model.get_input_embeddings().weight.detach()
        head = model.get_output_embeddings().weight.detach()
        self.reference = Reference(raw, weights, table, head)
        self.model, self.drafter = model, engine.decoder.drafter
        self.truth: list[int] = []
        self.checked = 0
        self.taps = self.drafter.taps
        self.reset, self.read, self.observe = (
            self.drafter.reset,
            self.drafter.read,
            self.drafter.observe,
        )

    def propose(self, context_ids: list[int]) -> list[int]:
        ids = list(context_ids)
        inner = self.drafter.inner
        drafts = self.drafter.propose(ids)
        outputs = layer_outputs(self.model, ids[:-1])
        expected = self.reference.hidden(ids, [outputs[tap + 1] for tap in TAPS])
        hidden = inner.hidden([Ask(0, ids, 9)])[0]
        assert (hidden.double() - expected).abs().max() < 1e-3
        assert drafts == self.reference.greedy(expected, ids[-1], len(drafts))
        self.checked += 1
        at = len(ids) % 5
        guess = self.truth[len(ids) : len(ids) + len(drafts)]
        return [(t + 1) % VOCAB if (at + i) % 5 == 4 else t for i, t in enumerate(guess)]


def given_up(engine: Engine, prompt: tuple[int, ...], after: int) -> GenerateResult:
    """Cancelled after so many chunks of the prompt and steps."""
    left = iter([True] * after)
    return engine.run(GenerateRequest("c", prompt, 30), proceed=lambda: next(left, False))


@pytest.mark.parametrize(("name", "linear"), [("dflash", "packed"), ("dspark", "plain")])
def test_the_drafters_context_is_what_was_committed(tmp_path: Path, name: str, linear: str) -> None:
    """Through partial acceptance, a stop inside a block, a cancelled prompt and answer."""
    folder = tmp_path / "target"
    model = make_folder(folder)
    drafter, raw, weights = write_drafter(tmp_path / name, KINDS[name])
    knobs = replace(knobs_of(name), linear=LinearKnobs(fp32=linear))
    engine = single(folder, drafter, knobs)
    checked = Checked(engine, model, raw, weights)
    engine.decoder.drafter = checked
    for length in (1, CHUNK, 2 * CHUNK + 2):
        prompt = prompt_of(length)
        truth = reference_greedy(model, list(prompt), 40)
        checked.truth = [*prompt, *truth]
        result = engine.run(GenerateRequest("r", prompt, 14))
        assert result.output_ids == truth[:14] and result.accepted > 4
        stop = truth[5]
        stopped = engine.run(GenerateRequest("s", prompt, 14, frozenset([stop])))
        assert stopped.output_ids == truth[: truth.index(stop) + 1]
        for more in (0, 1, 3):
            aborted = given_up(engine, prompt, -(-length // CHUNK) + more)
            assert aborted.finish and aborted.finish["type"] == "abort"
        given_up(engine, prompt, length // CHUNK)
    assert checked.checked > 15


def test_a_schedule_cuts_what_is_verified(tmp_path: Path) -> None:
    model = make_folder(tmp_path / "target")
    drafter, _, _ = write_drafter(tmp_path / "d", KINDS["dspark"])
    drafted = []
    for schedule in ("none", "threshold"):
        engine = single(tmp_path / "target", drafter, knobs_of("dspark", schedule=schedule))
        result = engine.run(GenerateRequest("r", prompt_of(20), 30))
        assert result.output_ids == reference_greedy(model, list(prompt_of(20)), 30)
        drafted.append(result.drafted)
    assert 0 < drafted[1] < drafted[0]


def errors_of(folder: Path, drafter: Path | None, knobs: EngineConfig) -> list[NativeEngineError]:
    """What the single path and the batch path say."""
    found = []
    for load in (
        lambda: single(folder, drafter, knobs),
        lambda: load_batch_engine(batch_options(folder, drafter), knobs),
    ):
        with pytest.raises(NativeEngineError) as caught:
            load()
        found.append(caught.value)
    return found


def test_what_is_wrong_is_said_as_the_batch_path_says_it(tmp_path: Path) -> None:
    folder, knobs = tmp_path / "target", knobs_of("dflash")
    make_folder(folder)
    raw = KINDS["dflash"]
    wide, _, _ = write_drafter(tmp_path / "wide", raw, hidden_size=48)
    words, _, _ = write_drafter(tmp_path / "words", raw, vocab_size=VOCAB + 3)
    broken, _, _ = write_drafter(tmp_path / "broken", raw)
    weights = {k: v for k, v in synthetic.random_weights({**raw}).items() if k != "fc.weight"}
    synthetic.save_file(weights, str(broken / "model.safetensors"))
    spark, _, _ = write_drafter(tmp_path / "spark", KINDS["dspark"])
    plain, _, _ = write_drafter(tmp_path / "plain", synthetic.DFLASH)
    other = "is 'dflash'; set drafter = 'dspark' there, or give a checkpoint of dflash"
    cases: list[tuple[Path | None, EngineConfig, type[NativeEngineError], str]] = [
        (None, knobs, ConfigError, "give --draft-model-dir"),
        (tmp_path / "nowhere", knobs, ConfigError, "nowhere"),
        (wide, knobs, ConfigError, "hidden_size=48, its target's 96"),
        (words, knobs, ConfigError, f"vocab_size={VOCAB + 3}, its target's {VOCAB}"),
        (broken, knobs, WeightsError, "missing fc.weight"),
        (spark, knobs, ConfigError, f"spark: a dspark checkpoint, engine.toml drafter {other}"),
        (plain, knobs_of("dspark"), ConfigError, "plain: a dflash checkpoint"),
        (wide, knobs_of("dflash", shedule="none"), ConfigError, "did you mean 'schedule'"),
        (wide, knobs_of("dflsh"), ConfigError, "did you mean 'dflash'"),
    ]
    for drafter, wrong, kind, text in cases:
        for error in errors_of(folder, drafter, wrong):
            assert type(error) is kind and text in str(error)


def test_without_speculation_no_weights_are_read(tmp_path: Path) -> None:
    make_folder(tmp_path)
    engine = single(tmp_path, tmp_path / "nowhere", knobs_of("dspark"), speculation=False)
    assert engine.decoder.drafter is None
    with pytest.raises(ConfigError, match="draft_tokens=-1"):
        single(tmp_path, None, knobs_of("dspark", draft_tokens=-1), speculation=False)


@pytest.mark.parametrize("name", KINDS)
def test_a_drafts_time_is_split(tmp_path: Path, name: str) -> None:
    make_folder(tmp_path / "target")
    drafter, _, _ = write_drafter(tmp_path / name, KINDS[name])
    engine = single(tmp_path / "target", drafter, knobs_of(name))
    times = draft_times(engine.decoder.drafter, 40, repeats=4)
    total = times.pop("total")
    assert set(times) == {"context", "draft", "draft_head", "selector"}
    assert all(ms > 0 for ms in times.values()) and sum(times.values()) <= total
    result = engine.run(GenerateRequest("r", prompt_of(20), 9))
    assert len(result.output_ids) == 9
