"""Targets and parallel drafters of the deployments through the batch path, against transformers."""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from native_engine.batching.batch_engine import BatchOptions, load_batch_engine
from native_engine.config import BatchingKnobs, EngineConfig, PrefillKnobs, SpeculationKnobs
from native_engine.errors import ConfigError
from native_engine.requests import GenerateRequest, SamplingOptions
from tests.engines.native.batching.full_forward import full_forward_greedy
from tests.engines.native.batching.harness import answers, ask, scheduling
from tests.engines.native.drafters import synthetic
from tests.engines.native.targets import tiny_qwen35
from tests.engines.native.targets.oracle import Oracle
from tests.engines.native.tiny import VOCAB, make_folder

DRAFTERS = {"dflash": synthetic.DFLASH2, "dspark": synthetic.DSPARK}
HYBRID, MUSE = "hybrid", "muse"


def drafter_folder(folder: Path, raw: Mapping[str, Any], hidden: int, layers: int) -> Path:
    own = {
        "hidden_size": hidden,
        "vocab_size": VOCAB,
        "num_target_layers": layers,
        "dflash_config": raw["dflash_config"]
        | {"mask_token_id": VOCAB - 1, "target_layer_ids": [0, layers - 1]},
    }
    synthetic.write_checkpoint(folder, {**raw, **own})
    return folder


@pytest.fixture(scope="module", params=["llama", HYBRID, MUSE])
def target(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Folder, transformers' model, hidden size, layers."""
    folder = tmp_path_factory.mktemp(request.param)
    if request.param == HYBRID:
        return folder, tiny_qwen35.make_folder(folder), 48, 4
    if request.param == MUSE:
        return folder, Oracle(MUSE, folder).model, 96, 6
    return folder, make_folder(folder), 96, 3


def requests_of(count: int, seed: int) -> list[GenerateRequest]:
    generator = random.Random(seed)
    return [
        GenerateRequest(
            f"r{i}",
            tuple(generator.randrange(2, VOCAB - 1) for _ in range(generator.randint(1, 30))),
            generator.randint(1, 24),
        )
        for i in range(count)
    ]


@pytest.mark.parametrize("name", ["dflash", "dspark"])
def test_drafted_answers_are_the_targets_own(target: Any, name: str, tmp_path: Path) -> None:
    folder, model, hidden, layers = target
    raw = synthetic.MUSE if layers == 6 and name == "dflash" else DRAFTERS[name]
    drafter = drafter_folder(tmp_path / name, raw, hidden, layers)
    options = BatchOptions(
        model_dir=folder,
        dtype="fp32",
        device="cpu",
        load_format="safetensors",
        slots=5,
        max_total_tokens=64,
        speculation=True,
        prefix_reuse=True,
        draft_model_dir=str(drafter),
        root=tmp_path,
    )
    knobs = EngineConfig(
        prefill=PrefillKnobs(9, 4),
        speculation=SpeculationKnobs(name, 4),
        batching=BatchingKnobs(40, 8),
    )
    engine = load_batch_engine(options, knobs)
    requests = requests_of(10, 3)
    longer = [GenerateRequest(f"{r.id}+", (*r.prompt_ids, 5, 6), 4) for r in requests[-4:]]
    with scheduling(engine) as scheduler:
        found = answers(scheduler, requests)
        again = answers(scheduler, longer)
        # Temperature: the drafter's own q meets the exact rule.
        heat = SamplingOptions(1.0, seed=1)
        hot = [
            ask(scheduler, GenerateRequest(r.id, r.prompt_ids, 9, sampling=heat)) for r in requests
        ]
        assert all(len(one.result().output_ids) == 9 for one in hot)
    for request, answer in zip((*requests, *longer), (*found, *again), strict=True):
        assert answer == full_forward_greedy(model, request.prompt_ids, request.max_new_tokens)
    assert engine.decoder.times.drafted > 80
    wrong = EngineConfig(speculation=SpeculationKnobs(name, 4), drafters={name: {"shedule": "x"}})
    with pytest.raises(ConfigError, match="did you mean 'schedule'"):
        load_batch_engine(options, wrong)
