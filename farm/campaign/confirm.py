"""Confirmation: the winner against stock and AR on fresh held-out prompts with fresh launches."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, replace
from typing import Any

from engines.answers import GenerationRequest
from farm.campaign.baselines import Baselines
from farm.campaign.candidate import arm, estimated
from farm.campaign.context import CampaignContext, Measured, spread
from farm.campaign.decide import decide, failed
from farm.campaign.jobs import MeasureJob, MeasureOutcome, VerifyJob, VerifyOutcome
from farm.campaign.scheduler import Phase
from farm.campaign.tasks import measure, verify
from farm.results import CandidateResult, LosslessSummary, RatioInterval
from farm.verdicts import Decision, Verdict


@dataclass(frozen=True)
class Confirmation:
    """The held-out evidence for one engine."""

    decision: Decision
    to_stock: RatioInterval | None
    to_ar: RatioInterval | None
    stock_to_ar: RatioInterval | None
    measured: Measured | None
    verified: VerifyOutcome | None
    requests: tuple[GenerationRequest, ...] = ()


def confirm(
    ctx: CampaignContext, row: CandidateResult, base: Baselines
) -> Generator[Phase, list[Any], Confirmation]:
    """Every launch asks fresh prompts, none twice; answers of all launches are forced. AR runs
    beside the two in the first launch only: it takes as long as both."""
    purpose = f"confirm:{row.candidate_id}"
    launches = ctx.setting.measurement.launches_confirm
    ctx.observer.phase(f"confirming {row.mechanism} on held-out prompts", launches + 1)
    jobs: list[MeasureJob] = []
    for launch in range(launches):
        asked = {request.prompt_ids for job in jobs for request in job.requests}
        jobs.append(_launch(ctx, row, launch, asked))
    outcomes: list[MeasureOutcome] = yield Phase("confirm", [measure(job) for job in jobs])
    for outcome in outcomes:
        if outcome is None:
            return _unconfirmed(Decision(Verdict.INCONCLUSIVE, "no time left to confirm"))
        if (failure := failed(outcome, "candidate")) is not None:
            return _unconfirmed(failure)
    recordings = [o.recording for o in outcomes if o.recording is not None]
    exact = [answer for o in outcomes for answer in o.exact_answers or ()]
    verified_list: list[VerifyOutcome] = yield Phase(
        "verify",
        [
            verify(
                VerifyJob(
                    unit=f"verify:{purpose}",
                    setting=ctx.setting_ref,
                    stock_commit=ctx.stock.commit,
                    stock_tree=ctx.stock.tree_hash,
                    bundle=ctx.trees.bundle(ctx.stock.commit),
                    answers=tuple(ctx.statistics.answers(recordings, "candidate")),
                    exact_setting=ctx.exact_setting,
                    exact_answers=tuple(exact) if exact else None,
                    calibration=base.calibration,
                    final=True,
                )
            )
        ],
    )
    verified = verified_list[0]
    ar_name = f"{ctx.stock_name}-ar"
    ratio = estimated(ctx, recordings, "stock", ctx.stock_name)
    to_ar = estimated(ctx, recordings[:1], "ar", ar_name)
    if ratio is None or to_ar is None:
        return _unconfirmed(decide(outcomes[0], None, verified, base.floor))
    return Confirmation(
        decision=decide(outcomes[0], ratio.ratio, verified, base.floor),
        to_stock=ratio.ratio,
        to_ar=to_ar.ratio,
        stock_to_ar=ctx.statistics.estimate(recordings[:1], "stock", "ar", ar_name).ratio,
        measured=ratio,
        verified=verified,
        requests=tuple(r for job in jobs for r in (*job.requests, *job.exact_requests)),
    )


def confirmed_row(row: CandidateResult, confirmation: Confirmation) -> CandidateResult:
    """The candidate's row with the held-out interval; its verdict stands only if both agree."""
    decision = row.decision
    if confirmation.decision.verdict is not Verdict.ACCEPTED:
        reason = f"on held-out prompts: {confirmation.decision.reason}"
        decision = Decision(confirmation.decision.verdict, reason, confirmation.decision.evidence)
    summary = None if confirmation.verified is None else confirmation.verified.summary
    lossless = LosslessSummary(**summary) if summary else row.lossless
    return replace(
        row, decision=decision, heldout_to_stock=confirmation.to_stock, lossless=lossless
    )


def _launch(
    ctx: CampaignContext, row: CandidateResult, launch: int, asked: set[tuple[int, ...]]
) -> MeasureJob:
    """One launch's job; prompts that an earlier launch has `asked` are left out."""
    candidate = replace(
        arm(ctx, "candidate", "final", ctx.stock), commit=row.commit, tree_hash=row.tree_hash
    )
    arms = [candidate, arm(ctx, "stock", "stock", ctx.stock)]
    if launch == 0:
        arms.append(arm(ctx, "ar", "ar", ctx.stock))
    purpose = f"confirm:{row.candidate_id}:{launch}"
    return MeasureJob(
        unit=purpose,
        setting=ctx.setting_ref,
        arms=tuple(arms),
        requests=tuple(r for r in ctx.prompts.heldout(purpose) if r.prompt_ids not in asked),
        subject="candidate",
        denominator="stock",
        seconds=ctx.setting.measurement.seconds_per_candidate * len(arms) / 2,
        seed=ctx.seed + launch,
        bundles=(ctx.trees.bundle(row.commit), ctx.trees.bundle(ctx.stock.commit)),
        exact_setting=ctx.exact_setting,
        exact_requests=_exact(ctx, row) if launch == 0 else (),
        stop_losers=False,
        every_prompt=True,
    )


def _exact(ctx: CampaignContext, row: CandidateResult) -> tuple[GenerationRequest, ...]:
    return spread(ctx.prompts.heldout(f"exact:{row.candidate_id}"))


def _unconfirmed(decision: Decision) -> Confirmation:
    return Confirmation(decision, None, None, None, None, None)
