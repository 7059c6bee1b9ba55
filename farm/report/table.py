"""The verdict table in a terminal. Below 100 columns it leaves out what the others imply."""

from __future__ import annotations

from io import StringIO

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from farm.report import words
from farm.report.factors import factors, screening_line
from farm.results import CampaignReport, CandidateResult
from farm.verdicts import Verdict

WIDE = 116
NARROW = 100
_IMPLIED = ("to AR [95 %]", "tau x step")
_STYLES = {
    Verdict.ACCEPTED: "bold green",
    Verdict.NOT_LOSSLESS: "bold red",
    Verdict.CHEATING: "bold magenta",
    Verdict.INCONCLUSIVE: "yellow",
}


def _stacked(text: str, wide: bool) -> str:
    return text if wide else text.replace(" [", "\n[", 1)


def _row(candidate: CandidateResult, width: int) -> list[str | Text]:
    lossless, verdict = candidate.lossless, candidate.decision.verdict
    wide = width >= WIDE
    implied = [_stacked(words.ratio(candidate.to_ar), wide), words.tau_times_step(candidate)]
    return [
        words.label(candidate),
        _stacked(words.ratio(candidate.to_stock), wide),
        *(implied if width >= NARROW else []),
        words.count(lossless.mismatches if lossless else None),
        words.count(lossless.near_ties if lossless else None),
        words.exact(candidate),
        Text(verdict.value, style=_STYLES.get(verdict, "")),
    ]


def verdict_table(report: CampaignReport, width: int = WIDE) -> Table:
    """One row a candidate; intervals go below their ratio in less than `WIDE` columns, and ratios
    to AR and factors stay away in less than `NARROW`."""
    wide = width >= WIDE
    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("mechanism", overflow="fold", min_width=18)
    for name in ("to stock [95 %]", *(_IMPLIED if width >= NARROW else ())):
        table.add_column(_stacked(name, wide), no_wrap=True, justify="right")
    for name in ("mis-\nmatch", "near-\nties", "FP32\nexact"):
        table.add_column(name, no_wrap=True, justify="right")
    table.add_column("verdict", overflow="fold", min_width=12)
    for candidate in words.ordered(report):
        table.add_row(*_row(candidate, width))
    return table


def _reasons(report: CampaignReport) -> list[Text]:
    lines = []
    for candidate in words.ordered(report):
        line = Text(overflow="fold")
        verdict = candidate.decision.verdict
        line.append(verdict.value, style=_STYLES.get(verdict, ""))
        line.append(f"  {words.label(candidate)}: {candidate.decision.reason}")
        if candidate.heldout_to_stock is not None:
            line.append(f" (held-out {words.ratio_with_baseline(candidate.heldout_to_stock)})")
        if (found := factors(candidate)) is not None:
            line.append(f"; {found}")
        lines.append(line)
    return lines


def report_view(report: CampaignReport, width: int) -> RenderableType:
    """Header, table, one reason a candidate, promotion and serve command."""
    parts: list[RenderableType] = [
        Text(f"{report.setting}   campaign {report.campaign_id}   {report.started_utc}", "bold"),
        *(Text(line) for line in words.header_lines(report)),
        *(Text(line) for line in (words.canary_line(report),) if line),
        Text(f"ratios are speeds over stock ({report.stock_tree[:12]}) and over AR"),
        Text(""),
        verdict_table(report, width),
        *(Text(line) for line in (screening_line(report),) if line),
        Text(""),
        *_reasons(report),
        *(Text(f"note: {note}") for note in report.notes),
        Text(""),
        Text(words.promotion_line(report), style="bold"),
    ]
    if report.promoted:
        parts.append(Text(f"Serve it: {words.serve_command(report.setting)}"))
    return Group(*parts)


def print_report(report: CampaignReport, console: Console) -> None:
    """Prints the whole report to `console`."""
    console.print(report_view(report, console.width))


def report_text(report: CampaignReport, width: int = 110) -> str:
    """The report as plain text, no escape sequences, no line longer than `width`."""
    out = StringIO()
    print_report(report, Console(file=out, width=width, color_system=None, force_terminal=False))
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"
