"""DSpark's confidence: P(draft k accepted | drafts before it accepted)."""

from __future__ import annotations

import torch
from torch import Tensor

from native_engine.drafters.config import DrafterConfig
from native_engine.drafters.markov import Biased
from native_engine.targets.source import TensorSource


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
