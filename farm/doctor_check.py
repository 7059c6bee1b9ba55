"""One finding of `specfarm doctor`, and the GPUs it finds."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from typing import Literal

State = Literal["ok", "note", "missing"]


@dataclass(frozen=True)
class Check:
    """`missing` makes `doctor` exit with 2; `note` does not."""

    what: str
    state: State
    found: str
    remedy: str = ""


@dataclass(frozen=True)
class Gpu:
    """NVML's product name, and its memory in 1e9 bytes."""

    name: str
    memory_gb: float


def present_gpus() -> list[Gpu]:
    """Those torch sees; none where it is not installed."""
    if importlib.util.find_spec("torch") is None:
        return []
    import torch

    found = [torch.cuda.get_device_properties(i) for i in range(torch.cuda.device_count())]
    return [Gpu(gpu.name, gpu.total_memory / 1e9) for gpu in found]
