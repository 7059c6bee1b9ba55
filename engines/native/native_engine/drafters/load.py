"""A drafter from a checkpoint folder, or random weights of a published configuration's shapes."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from native_engine.config import EngineConfig
from native_engine.drafters.block_drafter import BlockDrafter
from native_engine.drafters.config import DrafterConfig
from native_engine.drafters.describe import checked_folder
from native_engine.drafters.dflash import DFlashDrafter
from native_engine.drafters.dspark import DSparkDrafter
from native_engine.drafters.options import DrafterOptions, parallel_options
from native_engine.drafters.parts import Parts, load_parts
from native_engine.drafters.published import published
from native_engine.errors import ConfigError
from native_engine.linear import linear_backend
from native_engine.targets.source import DummySource, SafetensorsSource, TensorSource


class Shared(Protocol):
    """What a drafter needs of its target (`native_engine.targets.protocol.Target` has it)."""

    vocab_size: int
    hidden_size: int
    layers: int
    dtype: torch.dtype
    device: torch.device

    def embed(self, ids: Tensor) -> Tensor: ...

    def head(self, normed: Tensor) -> Tensor: ...


def load_named(
    name: str,
    engine: EngineConfig,
    where: str | None,
    target: Shared,
    load_format: str = "safetensors",
    linear: str = "plain",
) -> BlockDrafter:
    """Parallel drafter `name` of engine.toml, its weights from `where`, else as `load_drafter`.
    ConfigError also where they are of the other kind."""
    options = parallel_options(engine, name)
    if where is None:
        raise ConfigError(f"engine.toml drafter {name!r} has weights: give --draft-model-dir")
    dtype, device = target.dtype, target.device
    drafter = load_drafter(where, target, dtype, device, load_format, options, linear)
    kind = drafter.config.kind.replace("dflash2", "dflash")
    if kind != name:
        raise ConfigError(
            f"--draft-model-dir {where}: a {kind} checkpoint, engine.toml drafter is {name!r}; "
            f"set drafter = {kind!r} there, or give a checkpoint of {name}"
        )
    return drafter


def load_drafter(
    where: Path | str,
    target: Shared,
    dtype: torch.dtype,
    device: torch.device,
    load_format: str = "safetensors",
    options: DrafterOptions | None = None,
    linear: str = "plain",
    dummy_seed: int = 0,
) -> BlockDrafter:
    """`where`: a checkpoint folder or, with `load_format` "dummy", a published name.

    Embedding and head are the target's unless the checkpoint carries its own. Raises ConfigError
    naming a key, an option, or what does not fit the target; WeightsError naming every tensor that
    is missing, misshapen or unexpected."""
    folder = Path(where)
    source: TensorSource
    if load_format == "dummy":
        known = folder.is_dir()
        config = DrafterConfig.from_folder(folder) if known else published(str(where)).config
        source = DummySource(dtype, device, dummy_seed)
    elif load_format == "safetensors":
        config = checked_folder(folder).config
        source = SafetensorsSource(folder, dtype, device)
    else:
        raise ConfigError(f"load format {load_format!r}: known: 'dummy', 'safetensors'")
    _fit(config, target)
    parts = load_parts(config, source, linear_backend(linear))
    return _assemble(config, parts, target, options or DrafterOptions())


def _fit(config: DrafterConfig, target: Shared) -> None:
    """Raises ConfigError unless this drafter can read this target's taps and share its tables."""
    pairs = (
        ("hidden_size", config.hidden_size, target.hidden_size),
        ("vocab_size", config.vocab_size, target.vocab_size),
    )
    for key, ours, theirs in pairs:
        if ours != theirs:
            raise ConfigError(f"the drafter's {key}={ours}, its target's {theirs}: not a pair")
    if config.taps[-1] >= target.layers:
        raise ConfigError(
            f"the drafter's target_layer_ids={list(config.taps)}: its target has "
            f"{target.layers} layers; not a pair"
        )


def _assemble(
    config: DrafterConfig, parts: Parts, target: Shared, options: DrafterOptions
) -> BlockDrafter:
    table = parts.embedding
    embed = target.embed if table is None else lambda ids: F.embedding(ids, table)
    head = parts.head or (lambda normed: target.head(normed.to(target.dtype)))
    if config.kind == "dspark":
        heads = (parts.markov, parts.confidence)
        return DSparkDrafter(parts.backbone, embed, head, options, *heads)
    return DFlashDrafter(parts.backbone, embed, head, options, parts.selector)
