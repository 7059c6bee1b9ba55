"""Jobs for the verifier: force what a candidate answered, or calibrate on what stock answered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from farm.campaign.context import CampaignContext
from farm.campaign.jobs import MeasureOutcome, VerifyJob


def candidate_job(
    ctx: CampaignContext,
    unit: str,
    outcomes: Sequence[MeasureOutcome],
    calibration: Mapping[str, Any],
    *,
    final: bool = False,
) -> VerifyJob:
    """Forces everything the candidate answered in `outcomes`: timed answers, those on the exact
    twin and those to the verifier-only prompts. `final` asks for the strict policy."""
    recordings = [o.recording for o in outcomes if o.recording is not None]
    exact = [answer for o in outcomes for answer in o.exact_answers or ()]
    return VerifyJob(
        unit=unit,
        **_stock(ctx),
        answers=tuple(ctx.statistics.answers(recordings, "candidate")),
        exact_setting=ctx.exact_setting,
        exact_answers=tuple(exact) if exact else None,
        verifier_requests=tuple(r for o in outcomes for r in o.verifier_requests),
        verifier_answers=tuple(a for o in outcomes for a in o.verifier_answers),
        calibration=dict(calibration),
        final=final,
    )


def calibration_job(
    ctx: CampaignContext,
    unit: str,
    placebo: Sequence[Mapping[str, Any]],
    beside: Sequence[Mapping[str, Any]],
) -> VerifyJob:
    """Calibrates on stock's answers in the A/A recordings (arms `stock` and `stock_b`, two
    processes of one tree) and in those `beside` AR."""
    return VerifyJob(
        unit=unit,
        **_stock(ctx),
        calibrate=True,
        ar_answers=tuple(ctx.statistics.answers(beside, "ar")),
        stock_answers=tuple(ctx.statistics.answers([*placebo, *beside], "stock")),
        restarted_answers=tuple(ctx.statistics.answers(placebo, "stock_b")),
    )


def _stock(ctx: CampaignContext) -> dict[str, Any]:
    return {
        "setting": ctx.setting_ref,
        "stock_commit": ctx.stock.commit,
        "stock_tree": ctx.stock.tree_hash,
        "bundle": ctx.trees.bundle(ctx.stock.commit),
    }
