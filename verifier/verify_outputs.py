"""`specfarm verify SETTING --outputs F.jsonl`: token-force given outputs on stock and judge them.

The outputs may come from any engine. Nothing is known of the tree that made them, so the FP32-exact
run that a candidate owes is not asked for; that the verdict says so is part of its evidence.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TextIO

from engines.answers import Answer
from settings.errors import SpecfarmError
from settings.one_line_parser import OneLineParser
from settings.paths import work_dir
from settings.schema import Setting
from verifier.batch import best_values, force_answers, score, unit_of
from verifier.calibration import LEAST_GAP, Calibration
from verifier.calibration_file import load_calibration
from verifier.core import LaunchStock
from verifier.ending import StopRules
from verifier.errors import CalibrationError, OutputsError
from verifier.forced import Forcer
from verifier.judgement import LosslessJudgement, judge
from verifier.margins import Unit, usual_magnitude
from verifier.outputs_file import parse_outputs
from verifier.outputs_table import print_json, print_table
from verifier.policy import MarginPolicy, exact_policy
from verifier.power import Power, power_of
from verifier.proportions import detection_tokens
from verifier.report import ForcingReport
from verifier.request_checks import check_requests
from verifier.thresholds import policy_for


@dataclass(frozen=True)
class VerifiedOutputs:
    """What was forced, the rules it was held to, the verdict, and what the sample can show."""

    report: ForcingReport
    policy: MarginPolicy
    judgement: LosslessJudgement
    power: Power


def calibration_path(setting: Setting) -> Path:
    """Where the farm leaves the latest A/A calibration of a setting: another one of the same name,
    in another folder, has a file of its own."""
    parts = setting.target, setting.drafter, setting.hardware, setting.serving, setting.decoding
    content = "".join(part.model_dump_json() for part in parts)
    digest = hashlib.sha256(content.encode()).hexdigest()[:8]
    return work_dir("calibration") / f"{setting.name}-{digest}.json"


def outputs_policy(
    setting: Setting,
    calibration: Calibration | None,
    unit: Unit,
    least_magnitude: float = 0.0,
) -> MarginPolicy:
    """The setting's policy without the FP32-exact duty; least margins, in ULPs no finer than at
    `least_magnitude`, where none is calibrated."""
    if setting.target.weights_dtype == "fp32":
        return exact_policy(unit=unit)
    if calibration is not None:
        return replace(policy_for(setting, calibration), requires_exact=False)
    return MarginPolicy(
        kind="near_tie",
        unit=unit,
        allowed_gap=LEAST_GAP[unit],
        delta=None,
        min_tokens=0,
        detect_one_in=1000,
        min_tokens_detect=detection_tokens(1 / 1000),
        requires_exact=False,
        source="not calibrated: the least margin of any calibration",
        least_magnitude=least_magnitude,
    )


def verify_outputs(
    setting: Setting,
    answers: Sequence[Answer],
    force: Forcer,
    rules: StopRules,
    calibration: Calibration | None = None,
) -> VerifiedOutputs:
    """Force all answers and judge them; ids outside the vocabulary are a usage error.

    Raises:
        OutputsError: an answer that stock cannot even read.
        engines.errors.EngineError: the forcing engine failed.
    """
    _check_readable(answers, rules.vocab_size)
    forced = force_answers(answers, force)
    unit = unit_of(forced)
    # Of the candidate's own text where there is no calibration; nothing is lossless by that.
    usual = usual_magnitude(best_values(forced.values())) if unit == "bf16_ulp" else 0.0
    try:
        policy = outputs_policy(setting, calibration, unit, usual)
    except CalibrationError as error:
        # A calibration that decides nothing is none: the outputs are forced and stay inconclusive.
        calibration = None
        policy = outputs_policy(setting, None, unit, usual)
        policy = replace(policy, source=f"not calibrated: {error.message}")
    report = score(answers, forced, policy, rules)
    judgement = judge(report, calibration, policy)
    return VerifiedOutputs(report, policy, judgement, power_of(report, policy))


def _check_readable(answers: Sequence[Answer], vocab_size: int) -> None:
    for answer in answers:
        if any(i >= vocab_size for i in answer.request.prompt_ids):
            raise OutputsError(
                f"request {answer.request.id}: a prompt id is outside [0, {vocab_size})",
                "use the setting's own tokenizer",
            )
    for problem in check_requests([a.request for a in answers], answers, vocab_size):
        if problem.kind == "ids":
            raise OutputsError(
                f"request {problem.request_id}: output_ids: {problem.detail}",
                "use the setting's own tokenizer",
            )


def main(argv: Sequence[str] | None = None, launch_stock: LaunchStock | None = None) -> int:
    """Command line; returns 0 lossless, 1 any other verdict, 2 usage or environment error."""
    parser = OneLineParser(prog="specfarm verify", description=__doc__)
    parser.add_argument("setting")
    parser.add_argument("--outputs", type=Path, required=True, help="JSON lines")
    parser.add_argument("--calibration", type=Path, help="default: the latest one of the setting")
    parser.add_argument("--stock", help="URL of a served stock, arm ar; default: one is launched")
    parser.add_argument("--json", action="store_true", help="JSON lines instead of a table")
    args = parser.parse_args(argv)
    try:
        return _run(args, sys.stdout, launch_stock)
    except SpecfarmError as error:
        if args.json:
            print(json.dumps({"event": "error", "message": str(error)}))
        else:
            print(f"error: {error}", file=sys.stderr)
        return error.exit_code


def _run(args: argparse.Namespace, out: TextIO, launch_stock: LaunchStock | None) -> int:
    # Imported here: `--help` and a bad file answer at once.
    from settings.loading import load_setting
    from settings.weights import ensure_target
    from verifier.target_rules import stop_rules

    setting = load_setting(args.setting)
    answers = parse_outputs(args.outputs, setting.decoding.max_new_tokens)
    path = args.calibration or calibration_path(setting)
    if args.calibration is not None and not path.is_file():
        raise CalibrationError(f"{path} does not exist", "leave --calibration out or calibrate")
    calibration = load_calibration(path) if path.is_file() else None
    rules = stop_rules(ensure_target(setting), setting)
    stock = _stock(setting, args) if launch_stock is None else launch_stock(args.setting)
    with stock as force:
        verified = verify_outputs(setting, answers, force, rules, calibration)
    show = print_json if args.json else print_table
    show(verified.report, verified.policy, verified.judgement, verified.power, out)
    return 0 if verified.judgement.lossless else 1


def _stock(setting: Setting, args: argparse.Namespace) -> AbstractContextManager[Forcer]:
    if args.stock is not None:
        from verifier.served_stock import served_stock_forcer

        return served_stock_forcer(args.stock, setting)
    from verifier.stock_forcer import launch_stock_forcer

    return launch_stock_forcer(args.setting)


if __name__ == "__main__":
    raise SystemExit(main())
