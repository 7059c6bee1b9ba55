"""Confirmation: the winner against stock and AR on fresh held-out prompts with fresh launches."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, replace
from typing import Any

from engines.answers import GenerationRequest
from farm.campaign.baselines import Baselines
from farm.campaign.candidate import arm, estimated
from farm.campaign.context import CampaignContext, Measured
from farm.campaign.decide import decide
from farm.campaign.heldout_draws import Drawn, confirmation_draws, drawn
from farm.campaign.jobs import MeasureJob, MeasureOutcome, VerifyOutcome
from farm.campaign.scheduler import Phase
from farm.campaign.tasks import measure, verify
from farm.campaign.verification import candidate_job
from farm.results import CandidateResult, LosslessSummary, RatioInterval
from farm.verdicts import Decision, Verdict


@dataclass(frozen=True)
class Confirmation:
    """The held-out evidence for one engine. `to_stock` is its 95 % interval; the verdict rests on
    the one at `confidence` (farm.statistics.multiplicity)."""

    decision: Decision
    to_stock: RatioInterval | None
    to_ar: RatioInterval | None
    stock_to_ar: RatioInterval | None
    measured: Measured | None
    verified: VerifyOutcome | None
    heldout: tuple[Drawn, ...] = ()
    confidence: float = 0.95

    @property
    def requests(self) -> tuple[GenerationRequest, ...]:
        """Every held-out prompt that was asked."""
        return tuple(request for found in self.heldout for request in found.requests)


def confirm(
    ctx: CampaignContext, row: CandidateResult, base: Baselines, confidence: float = 0.95
) -> Generator[Phase, list[Any], Confirmation]:
    """Every launch asks fresh prompts, none twice; answers of all launches are forced. AR runs
    beside the two in the first launch only: it takes as long as both. The lower bound that must
    exceed the floor is that of the interval at `confidence`."""
    purpose = f"confirm:{row.candidate_id}"
    launches = ctx.setting.measurement.launches_confirm
    ctx.observer.phase(f"confirming {row.mechanism} on held-out prompts", launches + 1)
    draws = confirmation_draws(row.candidate_id, launches, ctx.exact_setting is not None)
    heldout = drawn(ctx.prompts.heldout, draws)
    for_twin = tuple(request for found in heldout[launches:] for request in found.requests)
    jobs = [
        _launch(ctx, row, n, found, () if n else for_twin)
        for n, found in enumerate(heldout[:launches])
    ]
    outcomes: list[MeasureOutcome] = yield Phase("confirm", [measure(job) for job in jobs])
    for outcome in outcomes:
        if outcome is None:
            return _unconfirmed(Decision(Verdict.INCONCLUSIVE, "no time left to confirm"))
        if outcome.recording is None:
            ended = [o for o in outcomes if o is not None]
            guarded = ctx.guards.check(jobs[0].arms, ended, None)
            return _unconfirmed(decide(outcome, None, None, base.floor, guarded=guarded))
    # First answers only, where repeats are not like them (farm.bench.memoisation).
    recordings = ctx.guards.fair([o.recording for o in outcomes if o.recording is not None])
    job = candidate_job(ctx, f"verify:{purpose}", outcomes, base.calibration, final=True)
    verified_list: list[VerifyOutcome] = yield Phase("verify", [verify(job)])
    verified = verified_list[0]
    guarded = ctx.guards.check(jobs[0].arms, outcomes, verified)
    ar_name = f"{ctx.stock_name}-ar"
    ratio = estimated(ctx, recordings, "stock", ctx.stock_name)
    strict = estimated(ctx, recordings, "stock", ctx.stock_name, confidence)
    to_ar = estimated(ctx, recordings[:1], "ar", ar_name)
    if ratio is None or strict is None or to_ar is None:
        return _unconfirmed(decide(outcomes[0], None, verified, base.floor, guarded=guarded))
    return Confirmation(
        decision=decide(outcomes[0], strict.ratio, verified, base.floor, guarded=guarded),
        to_stock=ratio.ratio,
        to_ar=to_ar.ratio,
        stock_to_ar=ctx.statistics.estimate(recordings[:1], "stock", "ar", ar_name).ratio,
        measured=ratio,
        verified=verified,
        heldout=heldout,
        confidence=confidence,
    )


def confirmed_row(row: CandidateResult, confirmation: Confirmation) -> CandidateResult:
    """The candidate's row with the held-out interval; its verdict stands only if both agree."""
    found = confirmation.decision
    evidence = row.decision.evidence | {"confirmation": found.evidence}
    decision = replace(row.decision, evidence=evidence)
    if found.verdict is not Verdict.ACCEPTED:
        decision = Decision(found.verdict, f"on held-out prompts: {found.reason}", found.evidence)
    summary = None if confirmation.verified is None else confirmation.verified.summary
    lossless = LosslessSummary(**summary) if summary else row.lossless
    return replace(
        row, decision=decision, heldout_to_stock=confirmation.to_stock, lossless=lossless
    )


def _launch(
    ctx: CampaignContext,
    row: CandidateResult,
    launch: int,
    timed: Drawn,
    exact: tuple[GenerationRequest, ...],
) -> MeasureJob:
    """One launch's job; AR runs in the first, which also asks the verifier-only prompts."""
    candidate = replace(
        arm(ctx, "candidate", "final", ctx.stock), commit=row.commit, tree_hash=row.tree_hash
    )
    arms = [candidate, arm(ctx, "stock", "stock", ctx.stock)]
    if launch == 0:
        arms.append(arm(ctx, "ar", "ar", ctx.stock))
    return MeasureJob(
        unit=timed.draw.purpose,
        setting=ctx.setting_ref,
        # Whichever is launched first may be the slower one: each is, in turn.
        arms=tuple(arms if launch % 2 == 0 else arms[::-1]),
        requests=timed.requests,
        subject="candidate",
        denominator="stock",
        seconds=ctx.setting.measurement.seconds_per_candidate * len(arms) / 2,
        seed=ctx.seed + launch,
        bundles=(ctx.trees.bundle(row.commit), ctx.trees.bundle(ctx.stock.commit)),
        exact_setting=ctx.exact_setting,
        exact_requests=exact,
        stop_losers=False,
        every_prompt=True,
        verifier_prompts=() if launch else ctx.prompts.verifier(f"verifier:{row.candidate_id}"),
    )


def _unconfirmed(decision: Decision) -> Confirmation:
    return Confirmation(decision, None, None, None, None, None)
