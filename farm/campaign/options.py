"""What the command line may ask of a search; stored in the ledger so that resume knows it."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from typing import Any

from settings.errors import SpecfarmError

# All that explorers/canaries holds.
MOST_CANARIES = 6
_DURATION = re.compile(r"^(\d+(?:\.\d+)?)\s*([smh]?)$")
_SECONDS = {"": 60.0, "s": 1.0, "m": 60.0, "h": 3600.0}


@dataclass(frozen=True)
class SearchOptions:
    """`budget_s` bounds the wall clock of measuring new candidates; the time to confirm and export
    a winner is set aside from it. `canaries` counts planted candidates mixed in."""

    rounds: int = 1
    budget_s: float = 1800.0
    explorers: tuple[str, ...] = ("memory",)
    canaries: int = 2
    workers: int = 1

    def __post_init__(self) -> None:
        if self.rounds < 1:
            raise SpecfarmError(f"--rounds: {self.rounds} is not positive", "Give 1 or more")
        if self.workers < 1:
            raise SpecfarmError(f"--workers: {self.workers} is not positive", "Give 1 or more")
        if self.budget_s < 60:
            raise SpecfarmError(
                f"--budget: {self.budget_s:.0f} s buys no candidate", "Give at least 1m"
            )
        if not 0 <= self.canaries <= MOST_CANARIES:
            raise SpecfarmError(
                f"--canaries: {self.canaries} is not 0 to {MOST_CANARIES}", "Give one of these"
            )
        if not self.explorers:
            raise SpecfarmError("--explorers: no explorer is named", "Give one, such as memory")

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(data: dict[str, Any]) -> SearchOptions:
        return SearchOptions(**{**data, "explorers": tuple(data["explorers"])})


def parse_duration(text: str, field: str) -> float:
    """`90s`, `30m`, `1.5h` or a bare number of minutes, in seconds.

    Raises:
        SpecfarmError: anything else; names `field`.
    """
    match = _DURATION.match(text.strip())
    if match is None:
        raise SpecfarmError(f"{field}: {text!r} is not a duration", "Write 90s, 30m or 1.5h")
    return float(match[1]) * _SECONDS[match[2]]
