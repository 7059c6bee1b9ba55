"""What `specfarm verify` prints: a row a request, the total, the rules, the power calculation."""

from __future__ import annotations

import json
from typing import Any, TextIO

from verifier.judgement import LosslessJudgement
from verifier.policy import MarginPolicy
from verifier.power import Power, power_in_words
from verifier.report import ForcingReport, finite
from verifier.words import policy_in_words


def print_json(
    report: ForcingReport,
    policy: MarginPolicy,
    judgement: LosslessJudgement,
    power: Power,
    out: TextIO,
) -> None:
    """One line a request, one for the total."""
    for row in report.to_json()["rows"]:
        print(json.dumps({"event": "request", **row}), file=out)
    total: dict[str, Any] = {
        "event": "total",
        **report.totals(),
        "verdict": judgement.status,
        "reason": judgement.reason,
        "rules": policy_in_words(policy),
        "power": {**power.to_json(), "in_words": power_in_words(power)},
        "evidence": judgement.evidence,
    }
    print(json.dumps(total), file=out)


def print_table(
    report: ForcingReport,
    policy: MarginPolicy,
    judgement: LosslessJudgement,
    power: Power,
    out: TextIO,
) -> None:
    """Per request and in total: tokens, mismatches, near-ties, worst gap, first bad, end."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title="token forcing on stock")
    for name in ("request", "tokens", "mismatches", "near-ties", f"worst gap ({report.unit})"):
        table.add_column(name, justify="left" if name == "request" else "right")
    table.add_column("first bad", justify="right")
    table.add_column("end")
    for row in report.rows:
        bad = "-" if row.first_bad_position is None else str(row.first_bad_position)
        numbers = (row.tokens_checked, row.mismatches, row.near_ties + row.exact_ties)
        gap = f"{finite(row.worst_gap_ulps)}"
        table.add_row(row.request_id, *map(str, numbers), gap, bad, row.end_reason)
    table.add_section()
    numbers = (report.tokens_checked, report.mismatches, report.near_ties + report.exact_ties)
    first = report.first_bad_position or "-"
    worst = f"{finite(report.worst_gap_ulps)}"
    table.add_row("total", *map(str, numbers), worst, first, judgement.status)
    console = Console(file=out)
    console.print(table)
    for title, sentences in (
        ("rules", policy_in_words(policy)),
        ("power", power_in_words(power)),
    ):
        for sentence in sentences:
            console.print(f"{title}: {sentence}", highlight=False, markup=False)
    console.print(f"verdict: {judgement.status}: {judgement.reason}", highlight=False, markup=False)
