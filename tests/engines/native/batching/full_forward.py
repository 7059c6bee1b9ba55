"""transformers as an oracle without any state."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch


def full_forward_greedy(model: Any, prompt: Sequence[int], count: int) -> list[int]:
    """Greedy tokens of `model`, the whole text read again for each (`generate` would take prompt
    tokens that equal its padding for padding)."""
    ids = list(prompt)
    with torch.no_grad():
        for _ in range(count):
            ids.append(int(model(torch.tensor([ids]), use_cache=False).logits[0, -1].argmax()))
    return ids[len(prompt) :]
