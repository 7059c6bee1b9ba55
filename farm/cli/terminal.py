"""Progress for people (rich) and for programs (JSON lines)."""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

from rich.console import Console
from rich.markup import escape

from farm.report.table import print_report
from farm.report.words import ratio
from farm.results import CampaignReport, CandidateResult

# A log has no width: the verdict table gets the columns it needs there.
_LOG_WIDTH = 132


def wide_console() -> Console:
    """Standard output; a file or pipe is as wide as the verdict table wants."""
    own_width = sys.stdout.isatty() or "COLUMNS" in os.environ
    return Console(highlight=False, width=None if own_width else _LOG_WIDTH)


class TerminalObserver:
    """One line an event, with the time since the start."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or wide_console()
        self._start = time.monotonic()

    def _line(self, text: str) -> None:
        seconds = int(time.monotonic() - self._start)
        self._console.print(f"[dim]{seconds // 60:3d}:{seconds % 60:02d}[/] {text}", soft_wrap=True)

    def phase(self, name: str, units: int) -> None:
        self._line(f"[bold]{escape(name)}[/] ({units} to do)")

    def message(self, text: str) -> None:
        self._line(escape(text))

    def candidate(self, result: CandidateResult, recording: dict[str, object] | None) -> None:
        speed = "" if result.to_stock is None else f" {ratio(result.to_stock)}"
        held = result.heldout_to_stock
        heldout = "" if held is None else f" held-out {ratio(held)}"
        verdict = result.decision.verdict.value
        self._line(f"  {escape(result.mechanism)}: [bold]{verdict}[/]{escape(speed + heldout)}")

    def report(self, report: CampaignReport) -> None:
        """Interim reports stay silent; `show` prints the final one."""

    def show(self, report: CampaignReport) -> None:
        self._console.print()
        print_report(report, self._console)


class JsonObserver:
    """One JSON object an event on standard output."""

    def _emit(self, event: str, **data: Any) -> None:
        sys.stdout.write(json.dumps({"event": event, "time": time.time(), **data}) + "\n")
        sys.stdout.flush()

    def phase(self, name: str, units: int) -> None:
        self._emit("phase", name=name, units=units)

    def message(self, text: str) -> None:
        self._emit("message", text=text)

    def candidate(self, result: CandidateResult, recording: dict[str, object] | None) -> None:
        self._emit(
            "candidate",
            id=result.candidate_id,
            mechanism=result.mechanism,
            verdict=result.decision.verdict.value,
            reason=result.decision.reason,
            to_stock=None if result.to_stock is None else result.to_stock.__dict__,
        )

    def report(self, report: CampaignReport) -> None:
        """Interim reports stay silent; `show` prints the final one."""

    def show(self, report: CampaignReport) -> None:
        self._emit("report", report=report.to_json())


def terminal(as_json: bool) -> TerminalObserver | JsonObserver:
    """The observer for this command line."""
    return JsonObserver() if as_json else TerminalObserver()
