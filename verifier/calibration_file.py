"""A calibration as JSON: with every answer's counts, a row a shape, and what follows in words."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from verifier.calibration import ArmSample, Calibration
from verifier.errors import CalibrationError
from verifier.margins import Unit
from verifier.shapes import row_from_json

_REMEDY = "`specfarm search` and `specfarm evaluate` write a new one; delete it to do without"


def calibration_to_json(calibration: Calibration) -> dict[str, Any]:
    """JSON-serialisable; `calibration_from_json` is the inverse."""
    return {
        "setting": calibration.setting,
        "exact": calibration.exact,
        "unit": calibration.unit,
        "least_magnitude": calibration.least_magnitude,
        "ar": asdict(calibration.ar),
        "stock": asdict(calibration.stock),
        "shapes": [row.to_json() for row in calibration.shapes],
        "evidence": calibration.evidence,
        "summary": calibration.summary(),
    }


def calibration_from_json(data: dict[str, Any]) -> Calibration:
    """Inverse of `calibration_to_json`.

    Raises:
        CalibrationError: fields are missing or of the wrong kind.
    """

    def sample(value: dict[str, Any]) -> ArmSample:
        rows = tuple((str(i), int(n), int(x)) for i, n, x in value["answers"])
        return ArmSample(str(value["arm"]), rows, float(value["worst_gap"]))

    try:
        unit: Unit = "nats" if data["unit"] == "nats" else "bf16_ulp"
        return Calibration(
            setting=str(data["setting"]),
            exact=bool(data["exact"]),
            unit=unit,
            ar=sample(data["ar"]),
            stock=sample(data["stock"]),
            evidence=dict(data["evidence"]),
            shapes=tuple(row_from_json(row) for row in data["shapes"]),
            least_magnitude=float(data["least_magnitude"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise CalibrationError(f"not a calibration of this version: {error!r}", _REMEDY) from error


def save_calibration(calibration: Calibration, path: Path) -> None:
    """Write atomically as JSON."""
    temporary = path.with_suffix(".tmp")
    temporary.write_text(json.dumps(calibration_to_json(calibration), indent=1))
    temporary.replace(path)


def load_calibration(path: Path) -> Calibration:
    """Read what `save_calibration` wrote; CalibrationError when it is not one."""
    try:
        data = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise CalibrationError(f"{path}: {error}", _REMEDY) from error
    if not isinstance(data, dict):
        raise CalibrationError(f"{path}: not a calibration", _REMEDY)
    try:
        return calibration_from_json(data)
    except CalibrationError as error:
        raise CalibrationError(f"{path}: {error.message}", _REMEDY) from error
