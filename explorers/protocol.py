"""The contract of an explorer: look at the evidence, propose changes, nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from engines.knobs import KnobValue
from settings.schema import Setting


@dataclass(frozen=True)
class Change:
    """What to commit: a unified diff against the base tree, or `engine.toml` keys, or both.

    `knobs` maps dotted keys of engine.toml (`draft.length`) to their new values.
    """

    patch: str = ""
    knobs: Mapping[str, KnobValue] = field(default_factory=dict)


@dataclass(frozen=True)
class Prediction:
    """What the mechanism should do, written down before it is measured (ratios to stock)."""

    speed_ratio: float
    reason: str


@dataclass(frozen=True)
class Proposal:
    """One candidate. `kind` is `mechanism`, or the farm planted it to see that the gate works:
    `canary_noop` (honest, no faster), `canary_lossy` or `canary_cheat` (fast by other means).
    Canaries take the same way as everything else, under a name that says nothing; `planted` is
    their own, for the report."""

    mechanism: str
    component: str
    hypothesis: str
    change: Change
    prediction: Prediction
    kind: str = "mechanism"
    explorer: str = "memory"
    planted: str = ""


@dataclass(frozen=True)
class Evidence:
    """What is known of one earlier candidate in this campaign."""

    mechanism: str
    verdict: str
    ratio: float | None


@dataclass(frozen=True)
class ExplorerContext:
    """What an explorer may see: the setting, the engine's capabilities, the evidence so far.
    Held-out prompts and stock's outputs are not in it."""

    setting: Setting
    round: int
    evidence: Sequence[Evidence]
    has_compiler: bool


class Explorer(Protocol):
    """A source of candidates."""

    name: str

    def propose(self, context: ExplorerContext) -> Sequence[Proposal]:
        """New proposals for this round, best first; empty when there is nothing left to try."""
        ...
