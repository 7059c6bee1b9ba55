"""DSpark's confidence: P(draft k accepted | drafts before it accepted), and its calibration."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from native_engine.drafters.config import DrafterConfig
from native_engine.drafters.markov import Biased
from native_engine.targets.source import TensorSource

GRID = tuple(0.25 + 0.05 * i for i in range(96))
BINS = 20


class ConfidenceHead:
    """`sigmoid(proj([h_k; W1 x_{k-1}]) / T_k)`: known before token k is drawn, so that cutting a
    draft by it does not depend on the token cut."""

    def __init__(self, config: DrafterConfig, source: TensorSource) -> None:
        markov = config.markov.rank if config.markov and config.confidence_with_markov else 0
        self._with_markov = markov > 0
        self._proj = Biased(source, "confidence_head.proj", 1, config.hidden_size + markov)
        self._temperatures = config.temperatures or (1.0,) * config.max_drafts

    def __call__(self, k: int, hidden: Tensor, previous: Tensor | None) -> Tensor:
        """Confidence of slot k (from 0), FP32 `[n]`; `hidden` `[n, d]`, `previous` `[n, rank]`."""
        parts = (hidden, previous) if self._with_markov and previous is not None else (hidden,)
        return torch.sigmoid(self._proj(*parts).squeeze(-1).float() / self._temperatures[k])


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
