"""Targets by the `model_type` of config.json. Add one: a module with `load`, and a line here."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch

from native_engine.errors import ConfigError
from native_engine.linear import linear_backend
from native_engine.tables import unknown_name
from native_engine.targets import dense, muse
from native_engine.targets.hf_config import HfConfig
from native_engine.targets.modules import Pack
from native_engine.targets.protocol import Target
from native_engine.targets.qwen35 import Qwen35
from native_engine.targets.source import DummySource, SafetensorsSource, TensorSource

Loader = Callable[[HfConfig, TensorSource, Pack], Target]
"""Makes a target; dtype and device are the source's."""
TARGETS: dict[str, Loader] = {
    "llama": dense.load,
    "qwen3": dense.load,
    "muse_glimmer": muse.load,
    "qwen3_5": Qwen35,
    "qwen3_5_text": Qwen35,
}
CENTRED = ("muse_glimmer", "qwen3_5", "qwen3_5_text")
"""Models whose norms multiply by 1 + gain."""


def build_target(config: HfConfig, source: TensorSource, linear: str = "plain") -> Target:
    """The target `config` describes, of tensors from `source` (a RecordingSource lists them).

    Raises ConfigError naming a key whose value is not computed, WeightsError naming a tensor."""
    model_type = config.raw.get("model_type")
    if model_type not in TARGETS:
        raise unknown_name(f"{config.where} model_type", str(model_type), TARGETS)
    return TARGETS[model_type](config, source, linear_backend(linear))


def load_target(
    folder: Path,
    dtype: torch.dtype,
    device: torch.device,
    load_format: str = "safetensors",
    linear: str = "plain",
    dummy_seed: int = 0,
) -> Target:
    """Target of a Hugging Face folder; `load_format` "dummy" needs its config.json alone."""
    config = HfConfig.from_folder(folder)
    if load_format == "dummy":
        gain = 0.0 if config.raw.get("model_type") in CENTRED else 1.0
        return build_target(config, DummySource(dtype, device, dummy_seed, gain), linear)
    if load_format == "safetensors":
        return build_target(config, SafetensorsSource(folder, dtype, device), linear)
    raise ConfigError(f"load format {load_format!r}: known: 'dummy', 'safetensors'")
