"""The batch path over a tiny FP32 Llama against transformers' greedy generation, token by token."""

from __future__ import annotations

import random
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import LlamaForCausalLM

from native_engine.batching.batch_engine import (
    BatchEngine,
    BatchOptions,
    load_batch_engine,
    rehearse,
)
from native_engine.config import BatchingKnobs, EngineConfig, PrefillKnobs, SpeculationKnobs
from native_engine.errors import ConfigError, WeightsError
from native_engine.requests import GenerateRequest, LogprobOptions
from native_engine.targets.protocol import Rows
from tests.engines.native.batching.harness import answers, ask, scheduling
from tests.engines.native.targets import tiny_qwen35
from tests.engines.native.tiny import VOCAB, make_folder

TINY_CHUNKS = EngineConfig(prefill=PrefillKnobs(7, 3), batching=BatchingKnobs(64, 16))


def options(folder: Path, **changes: object) -> BatchOptions:
    base = BatchOptions(
        model_dir=folder,
        dtype="fp32",
        device="cpu",
        load_format="safetensors",
        slots=4,
        max_total_tokens=128,
        speculation=True,
        prefix_reuse=False,
        draft_model_dir=None,
        root=folder,
    )
    return replace(base, **changes)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, LlamaForCausalLM]:
    folder = tmp_path_factory.mktemp("tiny")
    return folder, make_folder(folder)


def requests_of(count: int, seed: int) -> list[GenerateRequest]:
    """Random lengths; every second prompt begins with the same instructions."""
    generator = random.Random(seed)
    requests: list[GenerateRequest] = []
    for i in range(count):
        ids = [generator.randrange(2, VOCAB) for _ in range(generator.randint(1, 45))]
        if i % 2 == 0:
            ids = [*range(20, 40), *ids[:20]]
        requests.append(GenerateRequest(f"r{i}", tuple(ids), generator.randint(1, 40)))
    return requests


def truth(reference: LlamaForCausalLM, requests: list[GenerateRequest]) -> list[list[int]]:
    """transformers' greedy answers, left-padded in one batch."""
    longest = max(len(r.prompt_ids) for r in requests)
    ids = torch.tensor([[0] * (longest - len(r.prompt_ids)) + list(r.prompt_ids) for r in requests])
    mask = torch.tensor(
        [[0] * (longest - len(r.prompt_ids)) + [1] * len(r.prompt_ids) for r in requests]
    )
    most = max(r.max_new_tokens for r in requests)
    with torch.no_grad():
        out = reference.generate(ids, attention_mask=mask, max_new_tokens=most, do_sample=False)
    return [out[i, longest:][: r.max_new_tokens].tolist() for i, r in enumerate(requests)]


@pytest.mark.parametrize(
    ("slots", "speculation", "reuse"),
    [
        (1, False, False),
        (1, True, False),
        (3, True, False),
        (3, False, True),
        (16, False, False),
        (16, True, True),
        (64, True, False),
    ],
)
def test_answers_are_transformers_answers(
    model: tuple[Path, LlamaForCausalLM], slots: int, speculation: bool, reuse: bool
) -> None:
    folder, reference = model
    requests = requests_of(30 if slots < 30 else 100, slots)
    knobs = replace(TINY_CHUNKS, batching=BatchingKnobs(64 if slots < 30 else 160, 16))
    engine = load_batch_engine(
        options(folder, slots=slots, speculation=speculation, prefix_reuse=reuse), knobs
    )
    with scheduling(engine) as scheduler:
        assert answers(scheduler, requests) == truth(reference, requests)
    assert (engine.slots.prefix_hits > 0) == reuse
    assert (engine.decoder.times.drafted > 0) == speculation


def test_arrivals_and_cancellations_change_no_other_answer(
    model: tuple[Path, LlamaForCausalLM],
) -> None:
    folder, reference = model
    requests = requests_of(30, 7)
    engine = load_batch_engine(options(folder, slots=6, prefix_reuse=True), TINY_CHUNKS)
    generator = random.Random(1)
    with scheduling(engine) as scheduler:
        asked = []
        for i, request in enumerate(requests):
            asked.append(ask(scheduler, request))
            if i % 4 == 1:
                scheduler.cancel(generator.choice(asked[-3:]).job)
            time.sleep(generator.random() * 0.004)
        expected = truth(reference, requests)
        complete = 0
        for one, answer in zip(asked, expected, strict=True):
            if one.job.cancelled.is_set():
                continue
            complete += 1
            assert one.result().output_ids == answer
        assert complete > 20
        while scheduler.load != (0, 0):
            time.sleep(0.001)
        assert scheduler.gauges()["slots_used"] == 0


def test_forcing_rows_equal_transformers_logits(model: tuple[Path, LlamaForCausalLM]) -> None:
    folder, reference = model
    engine = load_batch_engine(options(folder), TINY_CHUNKS)
    ids = tuple(requests_of(3, 5)[0].prompt_ids + tuple(range(40, 70)))
    forced = GenerateRequest("f", ids, 0, logprobs=LogprobOptions(2, 0, 4))
    with scheduling(engine) as scheduler:
        beside = [ask(scheduler, r) for r in requests_of(5, 6)]
        result = ask(scheduler, forced).result()
        for one in beside:
            one.result()
    with torch.no_grad():
        logits = reference(torch.tensor([ids])).logits[0]
    assert result.inputs is not None and result.outputs is not None
    raws = [*result.inputs.raw_tops[1:], *result.outputs.raw_tops]
    assert len(raws) == len(ids) - 2
    for row, raw in zip(logits[2:], raws, strict=True):
        assert raw is not None
        values, tokens = row.topk(4)
        assert [token for _, token in raw] == tokens.tolist()
        assert [value for value, _ in raw] == pytest.approx(values.tolist(), abs=1e-4)


def test_the_rehearsed_step_is_the_largest_and_leaves_nothing(
    model: tuple[Path, LlamaForCausalLM],
) -> None:
    for slots, capacity, rows, counts in (
        (4, 20, 70, (20, 20, 20, 10)),
        (2, 20, 70, (20, 20)),
        (3, 99, 64, (64,)),
    ):
        at = options(model[0], slots=slots, max_total_tokens=capacity)
        engine = load_batch_engine(at, TINY_CHUNKS)
        seen: list[tuple[int, ...]] = []
        target, state = engine.decoder.target, engine.decoder.state
        forward = target.forward

        def watched(given: Rows, *rest: Any, forward: Any = forward, seen: Any = seen) -> Any:
            seen.append(given.counts)
            return forward(given, *rest)

        target.forward = watched  # type: ignore[method-assign]
        with torch.inference_mode():
            rehearse(target, state, at, rows)
        assert seen == [counts]
        with scheduling(engine) as scheduler:
            request = GenerateRequest("r", (40, 41), 8)
            assert answers(scheduler, [request]) == truth(model[1], [request])


def test_what_does_not_fit_together_is_named(tmp_path: Path) -> None:
    make_folder(tmp_path)
    knobs = EngineConfig()

    def refused(text: str, knobs: EngineConfig = knobs, **changes: object) -> None:
        with pytest.raises(ConfigError, match=text):
            load_batch_engine(options(tmp_path, **changes), knobs)

    refused("max_position_embeddings", max_total_tokens=5000)
    refused("rows_per_step", slots=500)
    refused("quantization_config", dtype="fp8")
    if not torch.cuda.is_available():
        refused("CUDA", device="cuda")
    dflash = EngineConfig(speculation=SpeculationKnobs("dflash"))
    refused("--draft-model-dir", dflash)
    refused("did you mean 'dflash'", EngineConfig(speculation=SpeculationKnobs("dflsh")))
    refused("histogram", EngineConfig(speculation=SpeculationKnobs("replay")))
    refused("seeds", EngineConfig(drafters={"replay": {"seeds": 1}}), speculation=False)
    tiny_qwen35.make_folder(tmp_path / "hybrid")
    longest = EngineConfig(speculation=SpeculationKnobs(draft_tokens=63))
    load_batch_engine(options(tmp_path / "hybrid"), longest)
    with pytest.raises(ConfigError, match=r"draft_tokens=64: a recurrent target .* at most 63"):
        longer = EngineConfig(speculation=SpeculationKnobs(draft_tokens=64))
        load_batch_engine(options(tmp_path / "hybrid"), longer)
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(WeightsError, match="safetensors"):
        load_batch_engine(options(tmp_path), knobs)


def test_dummy_weights_and_replay(tmp_path: Path) -> None:
    make_folder(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    (tmp_path / "tau.json").write_text("[0.0, 0.0, 1.0]")
    knobs = EngineConfig(
        speculation=SpeculationKnobs("replay", 4), drafters={"replay": {"histogram": "tau.json"}}
    )
    engine: BatchEngine = load_batch_engine(options(tmp_path, load_format="dummy"), knobs)
    assert engine.replayed
    with scheduling(engine) as scheduler:
        result = ask(scheduler, GenerateRequest("r", (3, 4), 31)).result()
    assert result.replayed and result.steps == 10
    # Without speculation nothing is replayed.
    off = options(tmp_path, load_format="dummy", speculation=False)
    assert not load_batch_engine(off, knobs).replayed
