"""DSpark's confidences calibrated on held-out answers: Sequential Temperature Scaling (arXiv
2607.05147), left to right over the slots."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from engines.training.accept_length import Walk

GRID = tuple(0.25 + 0.05 * i for i in range(96))
BINS = 20


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


def fit_temperatures(
    logits: Tensor, accepted: Sequence[int], grid: Sequence[float] = GRID
) -> list[float]:
    """Sequential temperature scaling: left to right, each slot's temperature from `grid` that
    brings the cumulative product closest to the rate of accepted prefixes, the earlier ones fixed.

    logits: `[blocks, slots]` of the head. accepted: drafts accepted of each block."""
    lengths = torch.tensor(accepted)
    survival = torch.ones(logits.shape[0])
    found: list[float] = []
    for k in range(logits.shape[1]):
        reached = (lengths > k).float()
        trials = [survival * torch.sigmoid(logits[:, k].float() / t) for t in grid]
        errors = [calibration_error(trial, reached) for trial in trials]
        best = min(range(len(grid)), key=errors.__getitem__)
        found.append(grid[best])
        survival = trials[best]
    return found


def calibration_error(predicted: Tensor, happened: Tensor) -> float:
    """Expected calibration error of probabilities `[n]` against outcomes 0 or 1 `[n]`: the mean
    distance between prediction and rate over 20 equal bins, weighted by their counts."""
    bins = (predicted * BINS).long().clamp_(max=BINS - 1)
    gaps = torch.zeros(BINS).index_add_(0, bins, predicted - happened)
    return float(gaps.abs().sum()) / len(predicted)
