"""The identity of a unit of work: same key, same work, so a finished one is never repeated."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class UnitKey:
    """Everything a result depends on. `subject` tells units of one phase apart (a candidate, a
    launch); `repeat` counts deliberate repetitions of the same work."""

    campaign: str
    setting: str
    stock_tree: str
    tree: str
    environment: str
    harness: str
    hardware: str
    phase: str
    prompt_set: str
    subject: str = ""
    repeat: int = 0

    @property
    def digest(self) -> str:
        """sha256 over the canonical JSON of all fields (hex)."""
        text = json.dumps(asdict(self), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()
