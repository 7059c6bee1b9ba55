"""Where a model's tensors come from: safetensors, random numbers of the right shape, or a list.

A loader asks `take(name, *shape)` for each tensor, so that one loader reads checkpoints, fills
exact shapes with dummy weights, and describes itself (`specfarm inspect-drafter`)."""

from __future__ import annotations

import math
from collections.abc import Container, Mapping
from pathlib import Path
from typing import Any, Protocol

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from native_engine.errors import WeightsError


def open_safetensors(file: Path) -> Any:
    """safetensors' own handle; WeightsError where the file is broken."""
    try:
        return safe_open(file, framework="pt")
    except (OSError, SafetensorError) as error:
        raise WeightsError(f"{file}: {error}; download it again") from error


class TensorSource(Protocol):
    """`take` hands out each tensor once, in the dtype and on the device asked for at creation."""

    def take(self, name: str, *shape: int, dtype: torch.dtype | None = None) -> Tensor:
        """Tensor `name`; WeightsError when it is missing or misshapen. `dtype`: another than the
        model's (FP8 weights, FP32 gates)."""

    def has(self, name: str) -> bool:
        """Whether the checkpoint holds `name` (optional tensors)."""
        return True


class SafetensorsSource:
    """Every `*.safetensors` of a folder; a tensor is read when it is taken."""

    def __init__(self, folder: Path, dtype: torch.dtype, device: torch.device) -> None:
        self._dtype, self._device = dtype, device
        files = sorted(folder.glob("*.safetensors"))
        if not files:
            raise WeightsError(f"{folder}: no *.safetensors file")
        self._folder = folder
        self._handles: list[Any] = [open_safetensors(file) for file in files]
        self._where = {name: handle for handle in self._handles for name in handle.keys()}  # noqa: SIM118

    def has(self, name: str) -> bool:
        return name in self._where

    def take(self, name: str, *shape: int, dtype: torch.dtype | None = None) -> Tensor:
        if name not in self._where:
            raise WeightsError(f"{self._folder}: the checkpoint has no tensor {name!r}")
        tensor: Tensor = self._where[name].get_tensor(name)
        if tuple(tensor.shape) != shape:
            raise WeightsError(f"{name}: shape {tuple(tensor.shape)}, config.json says {shape}")
        return tensor.to(device=self._device, dtype=dtype or self._dtype)


class DummySource(TensorSource):
    """Random weights N(0, 0.02), seeded, made on the device. `gain`: what the gains of norms are
    about, 0 where the model adds 1 to them (doubled in every layer they would amplify rounding)."""

    def __init__(
        self, dtype: torch.dtype, device: torch.device, seed: int = 0, gain: float = 1.0
    ) -> None:
        self._dtype, self._device, self._gain = dtype, device, gain
        self._generator = torch.Generator(device).manual_seed(seed)

    def take(self, name: str, *shape: int, dtype: torch.dtype | None = None) -> Tensor:
        tensor = torch.empty(shape, dtype=torch.bfloat16, device=self._device)
        mean = self._gain if "norm" in name else 0.0
        tensor.normal_(mean, 0.02, generator=self._generator)
        return tensor.to(dtype or self._dtype)


class RecordingSource(TensorSource):
    """Keeps names and shapes and hands out tensors without storage: a model described, not read.
    present: the optional tensors there are, None for all."""

    def __init__(self, dtype: torch.dtype, present: Container[str] | None = None) -> None:
        self._dtype, self._present = dtype, present
        self.shapes: dict[str, tuple[int, ...]] = {}

    @property
    def parameters(self) -> int:
        return sum(math.prod(shape) for shape in self.shapes.values())

    def has(self, name: str) -> bool:
        return self._present is None or name in self._present

    def take(self, name: str, *shape: int, dtype: torch.dtype | None = None) -> Tensor:
        self.shapes[name] = shape
        return torch.empty(shape, dtype=dtype or self._dtype, device="meta")


def stacked(source: TensorSource, at: str, outs: Mapping[str, int], width: int) -> Tensor:
    """Matrices `{at}.{name}.weight` `[out, width]` stacked, so that one product serves."""
    parts = [source.take(f"{at}.{name}.weight", n, width) for name, n in outs.items()]
    return torch.cat(parts) if len(parts) > 1 else parts[0]
