"""Who hears of a campaign's progress: the terminal, JSON lines, the tracker."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from farm.results import CampaignReport, CandidateResult


class Observer(Protocol):
    """Told of events; must not raise for reasons of its own."""

    def phase(self, name: str, units: int) -> None: ...

    def message(self, text: str) -> None: ...

    def candidate(self, result: CandidateResult, recording: dict[str, object] | None) -> None: ...

    def report(self, report: CampaignReport) -> None:
        """The state so far (called again as it grows); the last one is final."""
        ...


class Observers:
    """Tells several observers."""

    def __init__(self, observers: Sequence[Observer]) -> None:
        self._observers = tuple(observers)

    def phase(self, name: str, units: int) -> None:
        for observer in self._observers:
            observer.phase(name, units)

    def message(self, text: str) -> None:
        for observer in self._observers:
            observer.message(text)

    def candidate(self, result: CandidateResult, recording: dict[str, object] | None) -> None:
        for observer in self._observers:
            observer.candidate(result, recording)

    def report(self, report: CampaignReport) -> None:
        for observer in self._observers:
            observer.report(report)
