"""What a certificate claims, measured again: phases for the campaign's scheduler."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from engines.answers import GenerationRequest
from farm.campaign.baselines import distrust
from farm.campaign.candidate import arm, estimated
from farm.campaign.context import CampaignContext, TreeLike
from farm.campaign.decide import decide
from farm.campaign.jobs import ArmSpec, MeasureJob, MeasureOutcome, VerifyJob, VerifyOutcome
from farm.campaign.scheduler import Phase
from farm.campaign.tasks import measure, verify
from farm.campaign.verification import calibration_job, candidate_job
from farm.promotion.certification import Remeasured
from farm.results import RatioInterval
from farm.search.certify_prompts import CertifyPrompts
from farm.verdicts import Verdict
from settings.errors import SpecfarmError


@dataclass(frozen=True)
class CertifyPlan:
    """`seconds` are timed seconds of two arms in one launch."""

    final: TreeLike
    prompts: CertifyPrompts
    seconds: float


def remeasure(ctx: CampaignContext, plan: CertifyPlan) -> Generator[Phase, list[Any], Remeasured]:
    """Stock against itself over fresh launches; final against stock, AR beside them in the first
    launch; final's answers to the certificate's own prompts; everything forced.

    The calibration takes stock's answers from all of these launches, so that a short measurement
    still holds the tokens the verifier needs.

    Raises:
        SpecfarmError: stock or the machine failed: nothing was learned about the engine.
    """
    placebo, aa, floor = yield from _placebo(ctx, plan)
    launches = len(plan.prompts.timed)
    ctx.observer.phase("final against stock and AR, fresh launches", launches)
    jobs = [_timed_job(ctx, plan, launch) for launch in range(launches)]
    timed: list[MeasureOutcome] = yield Phase("timed", [measure(job) for job in jobs])
    for outcome in timed:
        if outcome.recording is None:
            guarded = ctx.guards.check(jobs[0].arms, timed, None)
            failure = decide(outcome, None, None, floor, guarded=guarded)
            if failure.verdict is Verdict.INVALID_ENVIRONMENT:
                raise _nothing_learned(failure.reason)
            return Remeasured(failure, aa, floor)
    ctx.observer.phase("calibrating the verifier, forcing every token", 2)
    answered = _recordings(timed)
    calibrating = calibration_job(ctx, "verify:calibration", placebo, answered[:1])
    stock = tuple(ctx.statistics.answers([*placebo, *answered], "stock"))
    calibrated = yield from _verified(replace(calibrating, stock_answers=stock))
    if calibrated.calibration is None:
        raise _nothing_learned(f"the verifier could not calibrate: {calibrated.reason}")
    forcing = candidate_job(ctx, "verify:certify", timed, calibrated.calibration, final=True)
    # The certificate's own prompts are held-out ones like those timed: their near-ties count.
    answers = (*forcing.answers, *forcing.verifier_answers)
    forced = yield from _verified(
        replace(forcing, answers=answers, verifier_answers=(), verifier_requests=())
    )
    guarded = ctx.guards.check(jobs[0].arms, timed, forced)
    # First answers only, where repeats are not like them (farm.bench.memoisation).
    beside = ctx.guards.fair(answered)
    ar_name = f"{ctx.stock_name}-ar"
    to_stock = estimated(ctx, beside, "stock", ctx.stock_name)
    to_ar = estimated(ctx, beside[:1], "ar", ar_name)
    stock_to_ar = None
    if to_ar is not None:
        stock_to_ar = ctx.statistics.estimate(beside[:1], "stock", "ar", ar_name).ratio
    ratio = None if to_stock is None else to_stock.ratio
    return Remeasured(
        decision=decide(timed[0], ratio, forced, floor, guarded=guarded),
        aa=aa,
        aa_floor=floor,
        to_stock=ratio,
        to_ar=None if to_ar is None else to_ar.ratio,
        stock_to_ar=stock_to_ar,
        tau_ratio=None if to_stock is None else to_stock.tau_ratio,
        step_ratio=None if to_stock is None else to_stock.step_ratio,
        lossless=forced.summary,
        verification=forced.evidence,
    )


def _placebo(
    ctx: CampaignContext, plan: CertifyPlan
) -> Generator[Phase, list[Any], tuple[list[dict[str, Any]], RatioInterval, float]]:
    """Recordings of stock against itself, the interval and the floor."""
    launches = len(plan.prompts.placebo)
    ctx.observer.phase("stock against itself", launches)
    jobs = [_placebo_job(ctx, plan, launch) for launch in range(launches)]
    recordings = _recordings((yield Phase("placebo", [measure(job) for job in jobs])))
    aa, floor = ctx.statistics.aa_floor(recordings, ctx.stock_name)
    if distrust(aa) is not None:
        # A few placebos in a hundred exclude 1 by chance; that must not cost a certificate.
        ctx.observer.phase("stock against itself again, for it excludes 1", launches)
        more = [_placebo_job(ctx, plan, launch, after=launches) for launch in range(launches)]
        recordings += _recordings((yield Phase("placebo again", [measure(job) for job in more])))
        aa, floor = ctx.statistics.aa_floor(recordings, ctx.stock_name)
    if (why := distrust(aa)) is not None:
        raise _nothing_learned(why)
    ctx.observer.message(f"A/A x{aa.ratio:.3f} [{aa.low:.3f}, {aa.high:.3f}]; floor {floor:.3f}")
    return recordings, aa, floor


def _verified(job: VerifyJob) -> Generator[Phase, list[Any], VerifyOutcome]:
    outcomes: list[VerifyOutcome] = yield Phase(job.unit, [verify(job)])
    if outcomes[0].status == "invalid_environment":
        raise _nothing_learned(outcomes[0].reason)
    return outcomes[0]


def _placebo_job(
    ctx: CampaignContext, plan: CertifyPlan, launch: int, after: int = 0
) -> MeasureJob:
    """`after`: how many launches of the placebo there were before these."""
    stock, again = arm(ctx, "stock", "stock", ctx.stock), arm(ctx, "stock_b", "stock", ctx.stock)
    # Whichever is launched second may be the faster one: each is, in turn.
    arms = (stock, again) if launch % 2 == 0 else (again, stock)
    requests = plan.prompts.placebo[launch]
    unit = f"aa:{after + launch}"
    return _job(ctx, unit, after + launch, arms, requests, "stock_b", plan.seconds / 2)


def _timed_job(ctx: CampaignContext, plan: CertifyPlan, launch: int) -> MeasureJob:
    """The first launch also has AR and the FP32 twin's answers, the last the own prompts'."""
    engine = ctx.setting.engine.name
    final = ArmSpec("candidate", "final", engine, plan.final.commit, plan.final.tree_hash)
    arms = [final, arm(ctx, "stock", "stock", ctx.stock)]
    if launch == 0:
        arms.append(arm(ctx, "ar", "ar", ctx.stock))
    seconds = plan.seconds * len(arms) / 2
    requests = plan.prompts.timed[launch]
    job = _job(ctx, f"certify:{launch}", launch, tuple(arms), requests, "candidate", seconds)
    if launch == 0:
        job = replace(job, exact_setting=ctx.exact_setting, exact_requests=plan.prompts.exact)
    if launch == len(plan.prompts.timed) - 1:
        job = replace(job, verifier_prompts=plan.prompts.own)
    return job


def _job(
    ctx: CampaignContext,
    unit: str,
    launch: int,
    arms: tuple[ArmSpec, ...],
    requests: tuple[GenerationRequest, ...],
    subject: str,
    seconds: float,
) -> MeasureJob:
    commits = sorted({spec.commit for spec in arms})
    return MeasureJob(
        unit=unit,
        setting=ctx.setting_ref,
        arms=arms,
        requests=requests,
        subject=subject,
        denominator="stock",
        seconds=seconds,
        seed=ctx.seed + launch,
        bundles=tuple(ctx.trees.bundle(commit) for commit in commits),
        stop_losers=False,
    )


def _recordings(outcomes: Sequence[MeasureOutcome | None]) -> list[dict[str, Any]]:
    found = []
    for outcome in outcomes:
        if outcome is None or outcome.recording is None:
            what = "was not run" if outcome is None else f"{outcome.status}: {outcome.error}"
            raise _nothing_learned(f"a measurement {what}")
        found.append(outcome.recording)
    return found


def _nothing_learned(reason: str) -> SpecfarmError:
    return SpecfarmError(reason, "Repair it, then run the same specfarm certify: it goes on")
