"""The one-page result: what was found, on what machine, against what, with which command."""

from __future__ import annotations

from farm.report import words
from farm.report.factors import factor_rows, screening_line
from farm.results import CampaignReport, CandidateResult

_COLUMNS = (
    "mechanism",
    "ratio to stock [95 %]",
    "held-out [95 %]",
    "ratio to AR [95 %]",
    "tau x step",
    "mismatches",
    "near-ties",
    "tokens checked",
    "FP32 exact",
    "verdict",
)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _line(cells: list[str]) -> str:
    return "| " + " | ".join(_cell(cell) for cell in cells) + " |"


def _row(candidate: CandidateResult) -> list[str]:
    lossless = candidate.lossless
    return [
        words.label(candidate),
        words.ratio(candidate.to_stock),
        words.ratio(candidate.heldout_to_stock),
        words.ratio(candidate.to_ar),
        words.tau_times_step(candidate),
        words.count(lossless.mismatches if lossless else None),
        words.count(lossless.near_ties if lossless else None),
        words.count(lossless.tokens_checked if lossless else None),
        words.exact(candidate),
        candidate.decision.verdict.value,
    ]


def _references(report: CampaignReport) -> list[str]:
    floor = "not measured" if report.aa_floor is None else f"{report.aa_floor:.3f}"
    rows = (
        ("A/A, stock over stock", report.aa),
        ("AR over reference", report.ar_to_reference),
        ("stock over AR", report.stock_to_ar),
        ("final over stock", report.final_to_stock),
        ("final over AR", report.final_to_ar),
    )
    lines = [
        _line(["measured", "ratio [95 %]", "baseline", "n", "method"]),
        "|---|---|---|---|---|",
    ]
    for name, interval in rows:
        if interval is not None:
            cells = [name, words.ratio(interval), f"`{interval.baseline}`"]
            lines.append(_line([*cells, str(interval.n), interval.method]))
    return [*lines, "", f"A/A floor (upper 95 % bound of stock over stock): {floor}."]


def _factors(report: CampaignReport) -> list[str]:
    rows = factor_rows(report)
    if not rows:
        return []
    screened = screening_line(report)
    return [
        "## Accept length x steps a second",
        "",
        *([f"{screened}."] if screened else []),
        "Shrunken: the ratio to stock, drawn towards no change for having been one of several.",
        "",
        _line(["mechanism", "measured", "accept length", "steps/s", "shrunken to stock"]),
        "|---|---|---|---|---|",
        *(_line(list(row)) for row in rows),
        "",
    ]


def render_markdown(report: CampaignReport) -> str:
    """The report as Markdown (tables, reasons, machine, serve command)."""
    lines = [
        f"# {report.setting}: campaign {report.campaign_id}",
        "",
        f"Started {report.started_utc}; stock tree `{report.stock_tree}`.",
        "",
        f"**{words.promotion_line(report)}**",
    ]
    if report.promoted:
        lines += ["", "```", words.serve_command(report.setting), "```"]
    lines += ["", "## References", "", *_references(report), "", "## Verdicts", ""]
    if (planted := words.canary_line(report)) is not None:
        lines += [f"{planted}.".capitalize(), ""]
    lines += [_line(list(_COLUMNS)), "|" + "---|" * len(_COLUMNS)]
    candidates = words.ordered(report)
    lines += [_line(_row(candidate)) for candidate in candidates]
    lines += [
        "",
        "Ratios are speeds; tau = output tokens a verify step, bonus included; token forcing on "
        "the stock target; FP32 exact = matched/checked tokens of the FP32 twin.",
        "",
        *_factors(report),
        "## Reasons",
        "",
    ]
    lines += [
        f"- **{c.decision.verdict.value}** {words.label(c)}: {c.decision.reason}"
        for c in candidates
    ]
    if report.notes:
        lines += ["", "## Notes", "", *(f"- {note}" for note in report.notes)]
    lines += ["", "## Machine", "", *(f"- {k}: {v}" for k, v in sorted(report.machine.items()))]
    return "\n".join(lines) + "\n"
