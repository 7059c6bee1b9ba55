"""The rotary angles against transformers' own, YaRN included."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import Qwen3Config
from transformers.models.qwen3.modeling_qwen3 import Qwen3RotaryEmbedding

from native_engine.drafters.config import DrafterConfig
from native_engine.drafters.published import published
from native_engine.drafters.rope import rotary
from tests.engines.native.drafters.synthetic import DSPARK

PUBLISHED = {"rope_type": "yarn", "rope_theta": 1e7, "factor": 32.0, "beta_fast": 32.0}
PUBLISHED |= {"original_max_position_embeddings": 8192, "beta_slow": 1.0}


@pytest.mark.parametrize(
    "rope",
    [
        {"rope_type": "default", "rope_theta": 5e5},
        PUBLISHED,
        {**PUBLISHED, "factor": 4.0, "attention_factor": 1.1, "rope_theta": 1e4},
        {**PUBLISHED, "beta_fast": 20.0, "beta_slow": 3.0},
    ],
)
def test_angles_agree_with_transformers(rope: dict[str, Any]) -> None:
    config = DrafterConfig.from_mapping({**DSPARK, "head_dim": 128, "rope_parameters": rope})
    reference = Qwen3RotaryEmbedding(
        Qwen3Config(head_dim=128, max_position_embeddings=262144, rope_parameters=dict(rope))
    )
    positions = torch.tensor([0, 1, 17, 2048, 30_000])
    cos, sin = rotary(config, torch.device("cpu"), torch.float32).at(positions)
    expected_cos, expected_sin = reference(torch.zeros(1), positions[None])
    half = 64
    signed = torch.cat((-expected_sin[0, :, :half], expected_sin[0, :, half:]), dim=-1)
    assert (cos[:, 0] - expected_cos[0]).abs().max() < 1e-4
    assert (sin[:, 0] - signed).abs().max() < 1e-4


def test_the_published_dspark_stretches_positions() -> None:
    config = published("qwen3.8-27b-dspark").config
    assert config.yarn is not None and config.yarn.factor == 32.0
