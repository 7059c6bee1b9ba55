"""`specfarm verify SETTING --outputs F.jsonl`: token-force given outputs on stock and judge them.

The outputs may come from any engine. Nothing is known of the tree that made them, so the FP32-exact
run that a candidate owes is not asked for; that the verdict says so is part of its evidence.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any, TextIO

from engines.answers import Answer
from settings.errors import SpecfarmError
from settings.one_line_parser import OneLineParser
from settings.paths import work_dir
from settings.schema import Setting
from verifier.calibration import (
    LEAST_GAP,
    Calibration,
    exact_policy,
    load_calibration,
    policy_for,
)
from verifier.core import LaunchStock, force_all
from verifier.ending import StopRules
from verifier.errors import CalibrationError, OutputsError
from verifier.forced import Forcer
from verifier.judgement import LosslessJudgement, judge
from verifier.policy import MarginPolicy
from verifier.proportions import detection_tokens
from verifier.report import ForcingReport, finite
from verifier.request_checks import check_requests


def calibration_path(setting: str) -> Path:
    """Where the farm leaves the latest A/A calibration of a setting."""
    return work_dir("calibration") / f"{setting}.json"


def outputs_policy(setting: Setting, calibration: Calibration | None) -> MarginPolicy:
    """The setting's policy without the FP32-exact duty; least margins where none is calibrated."""
    if setting.target.weights_dtype == "fp32":
        return exact_policy()
    if calibration is not None:
        return replace(policy_for(setting, calibration), requires_exact=False)
    return MarginPolicy(
        kind="near_tie",
        unit="bf16_ulp",
        allowed_gap=LEAST_GAP["bf16_ulp"],
        delta=None,
        min_tokens=0,
        detect_one_in=1000,
        min_tokens_detect=detection_tokens(1 / 1000),
        requires_exact=False,
        source="not calibrated: the least margin of any calibration",
    )


def verify_outputs(
    setting: Setting,
    answers: Sequence[Answer],
    force: Forcer,
    rules: StopRules,
    calibration: Calibration | None = None,
) -> tuple[ForcingReport, LosslessJudgement]:
    """Force all answers and judge them; ids outside the vocabulary are a usage error.

    Raises:
        OutputsError: an answer that stock cannot even read.
        engines.errors.EngineError: the forcing engine failed.
    """
    problems = check_requests([a.request for a in answers], answers, rules.vocab_size)
    unreadable = [p for p in problems if p.kind == "ids"]
    for answer in answers:
        if any(i >= rules.vocab_size for i in answer.request.prompt_ids):
            raise OutputsError(
                f"request {answer.request.id}: a prompt id is outside [0, {rules.vocab_size})",
                "use the setting's own tokenizer",
            )
    if unreadable:
        raise OutputsError(
            f"request {unreadable[0].request_id}: output_ids: {unreadable[0].detail}",
            "use the setting's own tokenizer",
        )
    try:
        policy = outputs_policy(setting, calibration)
    except CalibrationError as error:
        # A calibration that decides nothing is none: the outputs are forced and stay inconclusive.
        calibration = None
        policy = replace(outputs_policy(setting, None), source=f"not calibrated: {error.message}")
    report = force_all(answers, force, policy, rules)
    return report, judge(report, calibration, policy)


def main(argv: Sequence[str] | None = None, launch_stock: LaunchStock | None = None) -> int:
    """Command line; returns 0 lossless, 1 any other verdict, 2 usage or environment error."""
    parser = OneLineParser(prog="specfarm verify", description=__doc__)
    parser.add_argument("setting")
    parser.add_argument("--outputs", type=Path, required=True, help="JSON lines")
    parser.add_argument("--calibration", type=Path, help="default: the latest one of the setting")
    parser.add_argument("--json", action="store_true", help="JSON lines instead of a table")
    args = parser.parse_args(argv)
    try:
        return _run(args, sys.stdout, launch_stock or _launch_stock)
    except SpecfarmError as error:
        if args.json:
            print(json.dumps({"event": "error", "message": str(error)}))
        else:
            print(f"error: {error}", file=sys.stderr)
        return error.exit_code


def _run(args: argparse.Namespace, out: TextIO, launch_stock: LaunchStock) -> int:
    # Imported here: `--help` and a bad file answer at once.
    from settings.loading import load_setting
    from settings.weights import ensure_target
    from verifier.target_rules import stop_rules

    setting = load_setting(args.setting)
    answers = parse(args.outputs, setting)
    path = args.calibration or calibration_path(setting.name)
    if args.calibration is not None and not path.is_file():
        raise CalibrationError(f"{path} does not exist", "leave --calibration out or calibrate")
    calibration = load_calibration(path) if path.is_file() else None
    rules = stop_rules(ensure_target(setting), setting)
    with launch_stock(args.setting) as force:
        report, judgement = verify_outputs(setting, answers, force, rules, calibration)
    if args.json:
        print_json(report, judgement, out)
    else:
        print_table(report, judgement, out)
    return 0 if judgement.lossless else 1


def parse(path: Path, setting: Setting) -> list[Answer]:
    """`parse_outputs` with the setting's limit as the default."""
    from verifier.outputs_file import parse_outputs

    return parse_outputs(path, setting.decoding.max_new_tokens)


def _launch_stock(setting_name: str) -> AbstractContextManager[Forcer]:
    from verifier.stock_forcer import launch_stock_forcer

    return launch_stock_forcer(setting_name)


def print_json(report: ForcingReport, judgement: LosslessJudgement, out: TextIO) -> None:
    """One line a request, one for the total."""
    for row in report.to_json()["rows"]:
        print(json.dumps({"event": "request", **row}), file=out)
    total: dict[str, Any] = {
        "event": "total",
        **report.totals(),
        "verdict": judgement.status,
        "reason": judgement.reason,
        "evidence": judgement.evidence,
    }
    print(json.dumps(total), file=out)


def print_table(report: ForcingReport, judgement: LosslessJudgement, out: TextIO) -> None:
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
    console.print(f"verdict: {judgement.status}: {judgement.reason}", highlight=False)


if __name__ == "__main__":
    raise SystemExit(main())
