"""Proposes what the mechanism memory knows: the shipped catalogue, filtered by preconditions."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from explorers.mechanism import Mechanism, load_catalogue
from explorers.protocol import ExplorerContext, Proposal

CATALOGUE = Path(__file__).resolve().parent / "catalogue"
CANARIES = Path(__file__).resolve().parent / "canaries"


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
            and self.refusal(mechanism, context) is None
        ]

    @staticmethod
    def refusal(mechanism: Mechanism, context: ExplorerContext) -> str | None:
        """Why `mechanism` is not proposed for this setting; None when it is."""
        return mechanism.preconditions.unmet(context.setting, has_compiler=context.has_compiler)


def canary_proposals(catalogue: Path = CANARIES) -> list[Proposal]:
    """The planted candidates: a no-op that must not be called faster, a lossy one that must not be
    called lossless."""
    return [mechanism.proposal(folder, "canary") for folder, mechanism in load_catalogue(catalogue)]
