"""Proposes what the mechanism memory knows: the shipped catalogue, filtered by preconditions."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from explorers.mechanism import Mechanism, load_catalogue
from explorers.protocol import ExplorerContext, Proposal

CATALOGUE = Path(__file__).resolve().parent / "catalogue"
CANARIES = Path(__file__).resolve().parent / "canaries"
# The first of the canaries by priority: a no-op that must not be called faster, and a lossy one
# that must not be called lossless.
ALWAYS_PLANTED = 2


class MemoryExplorer:
    """Every mechanism whose preconditions this setting meets and which was not tried yet."""

    name = "memory"

    def __init__(self, catalogue: Path = CATALOGUE) -> None:
        self._catalogue = catalogue

    def propose(self, context: ExplorerContext) -> Sequence[Proposal]:
        tried = {item.mechanism for item in context.evidence}
        return [
            mechanism.proposal(folder, self.name)
            for folder, mechanism in load_catalogue(self._catalogue)
            if mechanism.name not in tried
            and mechanism.round <= context.round
            and _refusal(mechanism, context) is None
        ]

    def left_out(self, context: ExplorerContext) -> dict[str, str]:
        """Mechanism -> the precondition that this setting does not meet."""
        refusals = {
            mechanism.name: _refusal(mechanism, context)
            for _, mechanism in load_catalogue(self._catalogue)
        }
        return {name: why for name, why in refusals.items() if why is not None}


def _refusal(mechanism: Mechanism, context: ExplorerContext) -> str | None:
    return mechanism.preconditions.unmet(context.setting, has_compiler=context.has_compiler)


def canary_proposals(count: int, seed: int, catalogue: Path = CANARIES) -> list[Proposal]:
    """`count` planted candidates: the no-op and the lossy one, then others drawn by `seed`. Each
    goes by a name that says nothing."""
    loaded = load_catalogue(catalogue)
    always, others = loaded[:ALWAYS_PLANTED], loaded[ALWAYS_PLANTED:]
    random.Random(seed).shuffle(others)
    return [
        replace(
            mechanism.proposal(folder, "canary"),
            mechanism=_neutral_name(mechanism, seed),
            hypothesis=f"another way to do {mechanism.component}",
            planted=mechanism.name,
        )
        for folder, mechanism in [*always, *others][:count]
    ]


def _neutral_name(mechanism: Mechanism, seed: int) -> str:
    digest = hashlib.sha256(f"{seed}:{mechanism.name}".encode()).hexdigest()
    return f"{mechanism.component}_variant_{digest[:4]}"
