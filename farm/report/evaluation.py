"""What `specfarm evaluate` prints at its end: a sentence for one candidate, a table for several."""

from __future__ import annotations

from collections.abc import Sequence
from io import StringIO

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from farm.report import words
from farm.results import CandidateResult


def evaluation_text(results: Sequence[CandidateResult], width: int = 120) -> str:
    """Plain text, no line of the table longer than `width`; the rows in the order given."""
    if len(results) == 1:
        (only,) = results
        return f"{only.decision.verdict.value}: {only.decision.reason}\n"
    out = StringIO()
    console = Console(file=out, width=width, color_system=None, force_terminal=False)
    console.print(Group(_table(results), Text(""), *map(_reason, results)))
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"


def _table(results: Sequence[CandidateResult]) -> Table:
    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("candidate", overflow="fold", min_width=18)
    for name in ("to stock [95 %]", "held-out [95 %]"):
        table.add_column(name, no_wrap=True, justify="right")
    table.add_column("verdict", no_wrap=True)
    table.add_column("decided by", overflow="fold")
    for result in results:
        table.add_row(
            result.mechanism,
            words.ratio(result.to_stock),
            words.ratio(result.heldout_to_stock),
            result.decision.verdict.value,
            words.caught_by(result),
        )
    return table


def _reason(result: CandidateResult) -> Text:
    text = f"{result.decision.verdict.value}  {result.mechanism}: {result.decision.reason}"
    return Text(text, overflow="fold")
