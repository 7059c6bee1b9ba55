"""What an explorer knows and a setting cannot use, said instead of passed over in silence."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol, runtime_checkable

from explorers.protocol import Explorer, ExplorerContext


@runtime_checkable
class Selective(Protocol):
    """An explorer that proposes only what fits the setting."""

    def left_out(self, context: ExplorerContext) -> Mapping[str, str]:
        """Mechanism -> the precondition that the setting does not meet, in words."""
        ...


def left_out(explorers: Iterable[Explorer], context: ExplorerContext) -> dict[str, str]:
    """All that the explorers pass over for this setting."""
    found: dict[str, str] = {}
    for explorer in explorers:
        if isinstance(explorer, Selective):
            found.update(explorer.left_out(context))
    return found
