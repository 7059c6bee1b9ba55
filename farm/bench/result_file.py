"""The result file of `bench`: one arm's recording with what it was run on."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from farm.bench.errors import MeasurementError
from farm.bench.recording import Recording, recording_from_json

SCHEMA = "specfarm-bench-1"


@dataclass(frozen=True)
class BenchResult:
    """`device`: cpu or a GPU index. `machine`: what `farm.machine` saw. `warm`: the warm-up.
    `summary`: decode tokens/s (median over prompts), TTFT, accept length; for readers only."""

    label: str
    setting: str
    arm: str
    device: str
    tree_hash: str
    recording: Recording
    warm: dict[str, Any]
    machine: dict[str, Any]
    summary: dict[str, Any]


def check_writable(path: Path) -> None:
    """Before minutes of timing, not after them.

    Raises:
        MeasurementError: no file can be written at `path`.
    """
    try:
        if path.is_dir():
            raise IsADirectoryError(f"{path} is a folder")
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        raise MeasurementError(
            f"--out: {path} cannot be written ({error.strerror or error})",
            "Name a file in a folder that can be",
        ) from error


def write_result(path: Path, result: BenchResult) -> None:
    """Atomic: a reader sees the old file or the whole new one."""
    data = {"schema": SCHEMA, **vars(result), "recording": result.recording.to_json()}
    write_json(path, data)


def write_json(path: Path, data: object) -> None:
    """Write JSON in one step."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=path.name, suffix=".tmp")
    try:
        with os.fdopen(handle, "w") as file:
            json.dump(data, file)
        Path(name).chmod(0o644)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def read_result(path: Path) -> BenchResult:
    """Read a result file.

    Raises:
        MeasurementError: names the file and the missing or malformed field.
    """
    remedy = "Make it with scripts/bench.sh."
    try:
        data = json.loads(path.read_text())
    except OSError as error:
        raise MeasurementError(f"{path}: {error.strerror}", remedy) from error
    except ValueError as error:
        raise MeasurementError(f"{path}: not JSON ({error})", remedy) from error
    if not isinstance(data, Mapping) or data.get("schema") != SCHEMA:
        raise MeasurementError(f"{path}: field schema is not {SCHEMA!r}", remedy)
    for field in ("label", "setting", "arm", "device", "tree_hash"):
        if not isinstance(data.get(field), str):
            raise MeasurementError(f"{path}: field {field} is missing or no string", remedy)
    for field in ("recording", "warm", "machine", "summary"):
        if not isinstance(data.get(field), Mapping):
            raise MeasurementError(f"{path}: field {field} is missing or no table", remedy)
    recording = recording_from_json(data["recording"], f"{path}: field recording")
    known = {key: data[key] for key in BenchResult.__annotations__}
    return BenchResult(**{**known, "recording": recording})
