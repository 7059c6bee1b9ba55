"""DSpark's confidences calibrated on held-out answers: Sequential Temperature Scaling (arXiv
2607.05147), by the engine's own fit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from engines.training.accept_length import Walk
from native_engine.drafters.confidence import calibration_error, fit_temperatures


@dataclass(frozen=True)
class Calibration:
    """`temperatures` by slot (config.json `confidence_temperatures`), and the expected calibration
    error of whole-draft survival by slot, before and after, over `blocks` steps."""

    temperatures: list[float]
    error_before: list[float]
    error_after: list[float]
    blocks: int


def calibrate(walks: Sequence[Walk], logits: Sequence[Tensor]) -> Calibration | None:
    """From walks and their confidence logits `[steps, slots]`; only steps whose whole draft the
    answer can judge count. None where there are none."""
    rows, accepted = [], []
    for found, scores in zip(walks, logits, strict=True):
        slots = scores.shape[1]
        for at, taken, row in zip(found.anchors, found.lengths, scores, strict=True):
            if at + slots < found.tokens:
                rows.append(row)
                accepted.append(taken)
    if not rows:
        return None
    stacked = torch.stack(rows).float()
    temperatures = fit_temperatures(stacked, accepted)
    plain = [1.0] * len(temperatures)
    return Calibration(
        temperatures,
        _errors(stacked, accepted, plain),
        _errors(stacked, accepted, temperatures),
        len(rows),
    )


def _errors(logits: Tensor, accepted: list[int], temperatures: list[float]) -> list[float]:
    survival = torch.sigmoid(logits / torch.tensor(temperatures)).cumprod(-1)
    lengths = torch.tensor(accepted)
    return [
        calibration_error(survival[:, k], (lengths > k).float()) for k in range(logits.shape[1])
    ]
