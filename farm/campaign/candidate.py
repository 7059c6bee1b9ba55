"""One candidate's way: commit -> measure -> force -> verdict, as a task of the scheduler."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from engines.answers import GenerationRequest
from engines.errors import PatchConflict, TreeRefused
from explorers.protocol import Change, Proposal
from farm.bench.errors import MeasurementError
from farm.campaign.context import CampaignContext, Measured, TreeLike
from farm.campaign.decide import decide, withheld
from farm.campaign.engagement import Engagement, engagement
from farm.campaign.jobs import ArmSpec, MeasureJob, MeasureOutcome, VerifyOutcome
from farm.campaign.scheduler import Task
from farm.campaign.tasks import measure, verify
from farm.campaign.verification import candidate_job
from farm.results import CandidateResult, LosslessSummary, RatioInterval
from farm.verdicts import Decision, Verdict
from settings.schema import ArmName
from settings.verifier_prompts import VerifierPrompt


@dataclass(frozen=True)
class Baseline:
    """What candidates of a round are measured against: the incumbent, and how it stands to stock
    and to AR (so that ratios to both can be composed). `untrusted` says why nothing may be accepted
    (farm.campaign.baselines). A candidate that cannot reach `bar` any more is not timed to the end.
    """

    tree: TreeLike
    name: str
    arm: ArmName
    to_stock: RatioInterval | None
    stock_to_ar: RatioInterval | None
    floor: float
    calibration: dict[str, object]
    untrusted: str | None = None
    bar: float = 1.0


def commit_change(ctx: CampaignContext, base: str, change: Change, message: str) -> TreeLike:
    """Commits a patch, knobs, or both, on `base`.

    Raises:
        TreeRefused, PatchConflict: as the tree store says.
    """
    tree: TreeLike | None = None
    if change.patch:
        tree = ctx.trees.commit_patch(base, change.patch, message)
    if change.knobs:
        tree = ctx.trees.commit_knobs(tree.commit if tree else base, change.knobs, message)
    if tree is None:
        raise TreeRefused("the proposal changes nothing", "Give a patch or a knob")
    return tree


def arm(ctx: CampaignContext, label: str, role: ArmName, tree: TreeLike) -> ArmSpec:
    return ArmSpec(label, role, ctx.setting.engine.name, tree.commit, tree.tree_hash)


def candidate_task(
    ctx: CampaignContext,
    proposal: Proposal,
    candidate_id: str,
    round_: int,
    baseline: Baseline,
    verifier_prompts: tuple[VerifierPrompt, ...] = (),
    build: Callable[[], TreeLike] | None = None,
) -> Task:
    """Returns a CandidateResult. Refusals and conflicts end it before anything is launched.

    `build` makes the tree where the proposal's change does not (a folder or a commit that was
    given); it raises as `commit_change` does.
    """
    try:
        tree = (
            build()
            if build is not None
            else commit_change(
                ctx, baseline.tree.commit, proposal.change, f"{candidate_id}: {proposal.mechanism}"
            )
        )
    except (TreeRefused, PatchConflict) as error:
        verdict, by = Verdict.REFUSED, "patch_policy"
        if isinstance(error, PatchConflict):
            verdict, by = Verdict.CONFLICT, "merge"
        decision = Decision(verdict, str(error), {"caught_by": by, "remedy": error.remedy})
        return _finish(ctx, _row(proposal, candidate_id, round_, None, decision))
    result = yield from measure_and_verify(
        ctx,
        proposal,
        candidate_id,
        round_,
        tree,
        baseline,
        ctx.prompts.search,
        verifier_prompts,
    )
    return result


def measure_and_verify(
    ctx: CampaignContext,
    proposal: Proposal,
    candidate_id: str,
    round_: int,
    tree: TreeLike,
    baseline: Baseline,
    requests: tuple[GenerationRequest, ...],
    verifier_prompts: tuple[VerifierPrompt, ...] = (),
) -> Task:
    """Measures a built tree against the baseline, forces what it answered, decides."""
    arms = (
        arm(ctx, "candidate", "candidate", tree),
        arm(ctx, "stock", baseline.arm, baseline.tree),
    )
    measured = yield from measure(
        MeasureJob(
            unit=f"measure:{candidate_id}",
            setting=ctx.setting_ref,
            arms=arms,
            requests=requests,
            subject="candidate",
            denominator="stock",
            seconds=ctx.setting.measurement.seconds_per_candidate,
            seed=ctx.seed,
            bundles=(ctx.trees.bundle(tree.commit), ctx.trees.bundle(baseline.tree.commit)),
            exact_setting=ctx.exact_setting,
            exact_requests=ctx.prompts.exact,
            bar=baseline.bar,
            verifier_prompts=verifier_prompts,
        )
    )
    patch = ctx.trees.diff(baseline.tree.commit, tree.commit)
    row = _row(proposal, candidate_id, round_, tree, Decision(Verdict.INCONCLUSIVE, ""), patch)
    if measured.recording is None:
        guarded = ctx.guards.check(arms, [measured], None)
        decision = decide(measured, None, None, baseline.floor, guarded=guarded)
        return _finish(ctx, _with(row, decision=decision), measured)
    ratio = estimated(ctx, [measured.recording], "stock", baseline.name)
    verified: VerifyOutcome | None = None
    if not measured.clear_loser:
        job = candidate_job(ctx, f"verify:{candidate_id}", [measured], baseline.calibration)
        verified = yield from verify(job)
    decision = decide(
        measured,
        ratio.ratio if ratio else None,
        verified,
        baseline.floor,
        guarded=ctx.guards.check(arms, [measured], verified),
    )
    if baseline.untrusted is not None:
        decision = withheld(decision, baseline.untrusted)
    engaged = _engagement(proposal, measured, ratio, baseline.floor)
    decision = replace(decision, evidence={**decision.evidence, "engaged": engaged.to_json()})
    return _finish(
        ctx,
        with_numbers(row, decision, ratio, verified, baseline.to_stock, baseline.stock_to_ar),
        measured,
    )


def _engagement(
    proposal: Proposal, measured: MeasureOutcome, ratio: Measured | None, floor: float
) -> Engagement:
    """Whether the change took effect; a speed counts as a sign beyond the A/A floor only."""
    return engagement(
        proposal.change.knobs,
        measured.served.get("candidate", {}),
        measured.served.get("stock", {}),
        None if ratio is None else ratio.tau_ratio,
        None if ratio is None else (ratio.ratio.low / floor, ratio.ratio.high * floor),
    )


def with_numbers(
    row: CandidateResult,
    decision: Decision,
    measured: Measured | None,
    verified: VerifyOutcome | None,
    incumbent_to_stock: RatioInterval | None,
    stock_to_ar: RatioInterval | None,
) -> CandidateResult:
    """Fills a row: ratios to stock and AR composed where they were measured against another arm."""
    summary = None if verified is None or verified.summary is None else verified.summary
    row = _with(
        row,
        decision=decision,
        lossless=None if summary is None else LosslessSummary(**summary),
    )
    if measured is None:
        return row
    to_stock = compose(measured.ratio, incumbent_to_stock)
    return _with(
        row,
        to_stock=to_stock,
        to_ar=None if stock_to_ar is None else compose(to_stock, stock_to_ar),
        accept_length=measured.accept_length.get("candidate"),
        tau_ratio=measured.tau_ratio,
        step_ratio=measured.step_ratio,
        mean_throughput_ratio=measured.mean_throughput_ratio,
        to_baseline=measured.ratio,
        tau_interval=measured.tau,
        step_interval=measured.step,
    )


def estimated(
    ctx: CampaignContext,
    recordings: Sequence[Mapping[str, Any]],
    denominator: str,
    baseline: str,
    confidence: float = 0.95,
) -> Measured | None:
    """The candidate's ratio; None where its answers hold none (too short to time, say): a bad
    candidate must not end the campaign."""
    try:
        return ctx.statistics.estimate(recordings, "candidate", denominator, baseline, confidence)
    except MeasurementError as error:
        ctx.observer.message(f"no ratio to {baseline}: {error}")
        return None


def compose(first: RatioInterval, second: RatioInterval | None) -> RatioInterval:
    """a/b times b/c = a/c, log half-widths added in quadrature.

    That is exact where the two were measured on different prompts and launches; on the same prompts
    their errors share the effects of b, and the interval is only descriptive. Nothing is decided or
    certified on a composed ratio: a verdict takes the measured one, a confirmation measures all."""
    if second is None:
        return first
    ratio = first.ratio * second.ratio
    halves = [math.log(i.high / i.low) / 2 for i in (first, second)]
    half = math.hypot(*halves)
    method = f"{first.method}, composed"
    return RatioInterval(
        ratio,
        ratio * math.exp(-half),
        ratio * math.exp(half),
        second.baseline,
        min(first.n, second.n),
        method,
    )


def _row(
    proposal: Proposal,
    candidate_id: str,
    round_: int,
    tree: TreeLike | None,
    decision: Decision,
    patch: str = "",
) -> CandidateResult:
    return CandidateResult(
        candidate_id=candidate_id,
        mechanism=proposal.mechanism,
        kind=proposal.kind,
        component=proposal.component,
        round=round_,
        tree_hash="" if tree is None else tree.tree_hash,
        commit="" if tree is None else tree.commit,
        patch=patch or proposal.change.patch,
        decision=decision,
        hypothesis=proposal.hypothesis,
        planted=proposal.planted,
    )


def _with(row: CandidateResult, **changes: Any) -> CandidateResult:
    return replace(row, **changes)


def _finish(
    ctx: CampaignContext, row: CandidateResult, measured: MeasureOutcome | None = None
) -> CandidateResult:
    ctx.observer.candidate(row, None if measured is None else measured.recording)
    return row
