"""The verdicts a candidate can end with. Every one carries evidence."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum


class Verdict(StrEnum):
    ACCEPTED = "accepted"
    NOT_FASTER = "not_faster"
    NOT_LOSSLESS = "not_lossless"
    CHEATING = "cheating"
    INCONCLUSIVE = "inconclusive"
    CRASHED = "crashed"
    TIMEOUT = "timeout"
    INFEASIBLE = "infeasible"
    REFUSED = "refused"
    CONFLICT = "conflict"
    INVALID_ENVIRONMENT = "invalid_environment"


@dataclass(frozen=True)
class Decision:
    """A verdict, the sentence that says why, and the numbers behind it (JSON-serialisable)."""

    verdict: Verdict
    reason: str
    evidence: dict[str, object] = field(default_factory=dict)
