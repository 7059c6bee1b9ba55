"""The batch path on the device against itself on the CPU, in FP32 (transformers is not needed)."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from native_engine.batching.batch_engine import BatchOptions, load_batch_engine
from native_engine.config import BatchingKnobs, EngineConfig, PrefillKnobs, SpeculationKnobs
from native_engine.requests import GenerateRequest, LogprobOptions, SamplingOptions
from native_engine.targets.hf_config import HfConfig
from native_engine.targets.load import build_target
from native_engine.targets.source import RecordingSource
from tests.engines.native.batching.harness import answers, ask, scheduling
from tests.engines.native.drafters import synthetic

VOCAB = 97
LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "vocab_size": VOCAB,
    "hidden_size": 96,
    "intermediate_size": 160,
    "num_hidden_layers": 4,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "max_position_embeddings": 1024,
    "rms_norm_eps": 1e-5,
    "rope_theta": 1e4,
    "tie_word_embeddings": False,
}


def write_target(folder: Path) -> None:
    source = RecordingSource(torch.float32)
    build_target(HfConfig(LLAMA), source)
    generator = torch.Generator().manual_seed(0)
    weights = {}
    for name, shape in source.shapes.items():
        noise = torch.randn(shape, generator=generator)
        weights[name] = 1 + 0.2 * noise if "norm" in name else 0.3 * noise
    save_file(weights, str(folder / "model.safetensors"))
    (folder / "config.json").write_text(json.dumps(LLAMA))


@pytest.mark.gpu
@pytest.mark.parametrize("drafter", ["ngram", "dflash", "dspark"])
def test_the_device_gives_the_cpus_tokens(drafter: str, tmp_path: Path) -> None:
    write_target(tmp_path)
    raw = {"dflash": synthetic.DFLASH2, "dspark": synthetic.DSPARK}.get(drafter)
    folder = None
    if raw is not None:
        taps = raw["dflash_config"] | {"mask_token_id": VOCAB - 1, "target_layer_ids": [0, 3]}
        own = {"hidden_size": 96, "vocab_size": VOCAB, "num_target_layers": 4}
        synthetic.write_checkpoint(tmp_path / "drafter", {**raw, **own, "dflash_config": taps})
        folder = str(tmp_path / "drafter")
    draw = random.Random(2)
    requests = [
        GenerateRequest(f"r{i}", tuple(draw.choices(range(VOCAB - 1), k=draw.randint(1, 60))), 40)
        for i in range(20)
    ]
    forced = GenerateRequest(
        "f", requests[0].prompt_ids + (5,) * 9, 0, logprobs=LogprobOptions(0, 0, 3)
    )
    heat = SamplingOptions(1.0, 0.9, 50, seed=1)
    hot = [GenerateRequest("h", r.prompt_ids, 20, sampling=heat) for r in requests]
    found: dict[str, Any] = {}
    for device in ("cpu", "cuda"):
        options = BatchOptions(
            model_dir=tmp_path,
            dtype="fp32",
            device=device,
            load_format="safetensors",
            slots=8,
            max_total_tokens=128,
            speculation=device == "cuda",
            prefix_reuse=device == "cuda",
            draft_model_dir=folder,
            root=tmp_path,
        )
        knobs = EngineConfig(
            prefill=PrefillKnobs(20, 8),
            speculation=SpeculationKnobs(drafter, 4),
            batching=BatchingKnobs(64, 16),
        )
        engine = load_batch_engine(options, knobs)
        with scheduling(engine) as scheduler:
            texts = answers(scheduler, requests)
            force = ask(scheduler, forced).result()
            assert all(len(ids) == 20 for ids in answers(scheduler, hot))
            assert ("device_bytes" in scheduler.gauges()) == (device == "cuda")
        assert force.inputs is not None
        found[device] = texts, [row for row in force.inputs.raw_tops if row is not None]
    assert found["cuda"][0] == found["cpu"][0]
    for cuda, cpu in zip(found["cuda"][1], found["cpu"][1], strict=True):
        assert [i for _, i in cuda] == [i for _, i in cpu]
        assert [v for v, _ in cuda] == pytest.approx([v for v, _ in cpu], abs=1e-3)
