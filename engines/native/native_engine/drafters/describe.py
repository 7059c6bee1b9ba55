"""Which tensors a drafter needs, and what a checkpoint's headers have instead."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from native_engine.drafters.config import DrafterConfig
from native_engine.drafters.parts import load_parts
from native_engine.errors import WeightsError
from native_engine.linear import PlainLinear
from native_engine.targets.source import RecordingSource, open_safetensors

Shapes = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True)
class Description:
    """`shapes` by tensor name, in the order they are loaded; `parameters` in all."""

    config: DrafterConfig
    shapes: Shapes
    parameters: int


def describe(config: DrafterConfig, present: Shapes | None = None) -> Description:
    """What the loader takes for `config`, without storage; `present`: a checkpoint's headers, which
    decide on optional tensors."""
    source = RecordingSource(torch.bfloat16, present)
    load_parts(config, source, PlainLinear)
    return Description(config, source.shapes, source.parameters)


def checked_folder(folder: Path) -> Description:
    """A checkpoint folder's drafter, its headers compared with what config.json needs.

    Raises ConfigError, or WeightsError naming every missing, misshapen or unexpected tensor."""
    config, present = DrafterConfig.from_folder(folder), checkpoint_shapes(folder)
    embedding, head = (f"{name}.weight" in present for name in ("embed_tokens", "lm_head"))
    found = describe(replace(config, own_embedding=embedding, own_head=head), present)
    problems = differences(found.shapes, present)
    if problems:
        raise WeightsError(f"{folder}: {'; '.join(problems)}")
    return found


def checkpoint_shapes(folder: Path) -> dict[str, tuple[int, ...]]:
    """Shapes by tensor name, from the headers of every `*.safetensors` of `folder`."""
    shapes: dict[str, tuple[int, ...]] = {}
    for file in sorted(folder.glob("*.safetensors")):
        with open_safetensors(file) as handle:
            for name in handle.keys():  # noqa: SIM118  (not a dict)
                shapes[name] = tuple(handle.get_slice(name).get_shape())
    if not shapes:
        raise WeightsError(f"{folder}: no *.safetensors file with tensors")
    return shapes


def differences(needed: Shapes, present: Shapes) -> list[str]:
    """One line for each tensor that is missing, misshapen or unexpected."""
    lines = [f"missing {name} {list(needed[name])}" for name in needed if name not in present]
    lines += [
        f"{name} is {list(present[name])}, config.json says {list(shape)}"
        for name, shape in needed.items()
        if name in present and present[name] != shape
    ]
    return lines + [f"unexpected {name}" for name in present if name not in needed]
