"""Devices and dtypes by their names on the command line; identity and date of a record."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from pathlib import Path

import torch

from engines.training.errors import TrainingError

_DTYPES = {"bf16": torch.bfloat16, "fp32": torch.float32}


def device_of(name: str) -> torch.device:
    """Raises TrainingError for a device that is not there."""
    try:
        device = torch.device(name)
    except RuntimeError:
        raise TrainingError(f"--device {name!r} is no device", "Use cuda, cuda:N or cpu") from None
    if device.type == "cuda":
        if not torch.cuda.is_available() or (device.index or 0) >= torch.cuda.device_count():
            raise TrainingError(f"--device {name}: not there", "Use --device cpu, or another index")
        torch.cuda.set_device(device.index or 0)
        return torch.device("cuda", device.index or 0)
    return device


def dtype_of(name: str) -> torch.dtype:
    return _DTYPES[name]


def file_sha256(path: Path) -> str:
    """sha256 (hex) of a file's bytes. Raises TrainingError where it cannot be read."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise TrainingError(f"{path} cannot be read ({error.strerror})", "Check the path") from None


def utc_now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
