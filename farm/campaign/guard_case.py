"""What guards look at and what they say."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from engines.answers import Answer
from farm.bench.recording import Recording, merge_launches, recording_from_json
from farm.campaign.jobs import ArmSpec, MeasureOutcome, VerifyOutcome
from farm.verdicts import Decision
from settings.schema import Setting
from verifier.target_size import TargetSize

SUBJECT, CONTROL = "candidate", "stock"


@dataclass(frozen=True)
class Case:
    """One candidate when its verdict is due: `arms` as launched, an outcome a launch, what token
    forcing said (None: not forced), and what the campaign knew before.

    `owned`: keys of the setting (the engine driver's). `harness`: its hash when the campaign began
    and now. `size`: None where the target's is not known.
    """

    setting: Setting
    arms: tuple[ArmSpec, ...]
    outcomes: tuple[MeasureOutcome, ...]
    verified: VerifyOutcome | None
    owned: frozenset[str]
    harness: tuple[str, str]
    size: TargetSize | None = None

    @cached_property
    def recording(self) -> Recording | None:
        """All launches in one; None where nothing was timed."""
        found = [recording_from_json(o.recording) for o in self.outcomes if o.recording]
        return merge_launches(found) if found else None

    def answers(self, arm: str) -> tuple[Answer, ...]:
        return () if self.recording is None else self.recording.answers(arm)


@dataclass(frozen=True)
class Finding:
    """A guard's numbers (JSON), and its verdict where it has one."""

    evidence: Any = None
    decision: Decision | None = None


@dataclass(frozen=True)
class Guarded:
    """What all guards say: the verdict of the first that refuses (else of the first in doubt), and
    each guard's numbers by name."""

    decision: Decision | None = None
    evidence: Mapping[str, Any] = field(default_factory=dict)


Guard = Callable[[Case], Finding]
