"""The corpus's verdicts as a Markdown table: cheat, incident row, verdict, caught by, evidence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from farm.report import words
from farm.results import CandidateResult
from tests.cheats.corpus import Entry

_LONGEST_CLAUSE = 160
_HEAD = "| {} | stands for | ratio to stock, 95 % | verdict | caught by | evidence |"


def markdown(entries: Sequence[Entry], results: Mapping[str, CandidateResult]) -> str:
    """Cheats first, then the honest controls; one line each."""
    lines: list[str] = []
    for title, wanted in (("cheat", False), ("honest control", True)):
        chosen = [entry for entry in entries if entry.control == wanted]
        lines += [_HEAD.format(title), "|---|---|---|---|---|---|"]
        lines += [_line(entry, results[entry.name]) for entry in chosen]
        lines.append("")
    return "\n".join(lines)


def _line(entry: Entry, result: CandidateResult) -> str:
    longer = "; at the setting's own lengths" if entry.own_lengths else ""
    cells = (
        f"`{entry.name}`: {entry.does}{longer}",
        ", ".join(entry.rows),
        words.ratio(result.to_stock),
        result.decision.verdict.value,
        words.caught_by(result),
        clause(result.decision.reason),
    )
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def clause(reason: str) -> str:
    """The first line of a reason, cut at a word where it is long."""
    first = reason.strip().splitlines()[0] if reason.strip() else ""
    if len(first) <= _LONGEST_CLAUSE:
        return first
    return first[:_LONGEST_CLAUSE].rsplit(" ", 1)[0] + " ..."
