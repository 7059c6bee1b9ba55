"""Before any candidate: the A/A placebo, AR beside an independent implementation, calibration."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, replace
from typing import Any

from farm.campaign.candidate import arm
from farm.campaign.context import CampaignContext
from farm.campaign.jobs import ArmSpec, MeasureJob, MeasureOutcome, VerifyOutcome
from farm.campaign.scheduler import Phase
from farm.campaign.tasks import measure, verify
from farm.campaign.verification import calibration_job
from farm.results import RatioInterval
from settings.errors import SpecfarmError


@dataclass(frozen=True)
class Baselines:
    """What the campaign knows before its first candidate. `floor` is the A/A floor: the upper
    95 % bound of stock/stock, at least 1."""

    aa: RatioInterval
    floor: float
    ar_to_reference: RatioInterval | None
    stock_to_ar: RatioInterval
    calibration: dict[str, object]

    @property
    def untrusted(self) -> str | None:
        """Why nothing may be accepted; None where stock is as fast as itself."""
        return distrust(self.aa)


def distrust(aa: RatioInterval) -> str | None:
    """Why a machine whose stock/stock is `aa` cannot compare engines; None where it can."""
    if aa.low <= 1.0 <= aa.high:
        return None
    return (
        f"stock against itself is x{aa.ratio:.3f} [{aa.low:.3f}, {aa.high:.3f}], which excludes 1: "
        "this machine cannot be trusted to compare engines"
    )


def measure_baselines(ctx: CampaignContext) -> Generator[Phase, list[Any], Baselines]:
    """Stock against itself over fresh launches, and as often again where that says that stock is
    not as fast as itself; AR, stock and the reference interleaved; then the verifier's calibration
    from what stock and AR answered.

    Raises:
        SpecfarmError: a baseline could not be measured: without one nothing can be decided.
    """
    launches = ctx.setting.measurement.launches_aa
    tasks = [measure(_aa_job(ctx, n)) for n in range(launches)] + [measure(_reference_job(ctx))]
    ctx.observer.phase("A/A placebo and AR", len(tasks))
    recordings = _recordings((yield Phase("baselines", tasks)))
    placebo, beside = recordings[:launches], recordings[launches:]
    aa, floor = ctx.statistics.aa_floor(placebo, ctx.stock_name)
    if distrust(aa) is not None:
        # A few placebos in a hundred exclude 1 by chance; that must not cost a campaign.
        ctx.observer.phase("A/A placebo again, for it excludes 1", launches)
        more = [measure(_aa_job(ctx, n)) for n in range(launches, 2 * launches)]
        placebo += _recordings((yield Phase("baselines again", more)))
        aa, floor = ctx.statistics.aa_floor(placebo, ctx.stock_name)
    stock_to_ar = ctx.statistics.estimate(beside, "stock", "ar", f"{ctx.stock_name}-ar").ratio
    to_reference = None
    if ctx.reference is not None:
        to_reference = ctx.statistics.estimate(beside, "ar", "reference", ctx.reference_name).ratio
    ctx.observer.message(
        f"A/A x{aa.ratio:.3f} [{aa.low:.3f}, {aa.high:.3f}]; floor {floor:.3f}; "
        f"stock over AR x{stock_to_ar.ratio:.2f}"
    )
    ctx.observer.phase("calibrating the verifier", 1)
    job = calibration_job(ctx, "verify:calibration", placebo, beside)
    verified: list[VerifyOutcome] = yield Phase("calibration", [verify(job)])
    calibrated = verified[0]
    if calibrated.calibration is None:
        raise SpecfarmError(f"the verifier could not calibrate: {calibrated.reason}")
    return Baselines(aa, floor, to_reference, stock_to_ar, calibrated.calibration)


def _recordings(outcomes: list[MeasureOutcome | None]) -> list[dict[str, Any]]:
    """Raises SpecfarmError where one is missing."""
    found = []
    for outcome in outcomes:
        if outcome is None or outcome.recording is None:
            what = "was not run" if outcome is None else f"{outcome.status}: {outcome.error}"
            raise SpecfarmError(
                f"a baseline measurement {what}", "Repair it, then: specfarm resume CAMPAIGN"
            )
        found.append(outcome.recording)
    return found


def _aa_job(ctx: CampaignContext, launch: int) -> MeasureJob:
    stock_a, stock_b = (
        arm(ctx, "stock", "stock", ctx.stock),
        arm(ctx, "stock_b", "stock", ctx.stock),
    )
    job = _measure(ctx, f"aa:{launch}", (stock_a, stock_b), "stock_b", "stock", launch)
    # Whichever is launched second may be the faster one: each is, in turn.
    arms = job.arms if launch % 2 == 0 else job.arms[::-1]
    # Other prompts each launch: three times the tokens for the verifier's calibration.
    return replace(job, arms=arms, requests=ctx.prompts.heldout(job.unit))


def _reference_job(ctx: CampaignContext) -> MeasureJob:
    arms = [arm(ctx, "ar", "ar", ctx.stock), arm(ctx, "stock", "stock", ctx.stock)]
    if ctx.reference is not None:
        tree = ctx.reference
        arms.append(ArmSpec("reference", "ar", "transformers", tree.commit, tree.tree_hash))
    job = _measure(ctx, "beside:ar", tuple(arms), "stock", "ar", 0)
    return replace(job, seconds=job.seconds * 1.5)


def _measure(
    ctx: CampaignContext,
    unit: str,
    arms: tuple[ArmSpec, ...],
    subject: str,
    denominator: str,
    repeat: int,
) -> MeasureJob:
    return MeasureJob(
        unit=unit,
        setting=ctx.setting_ref,
        arms=arms,
        requests=ctx.prompts.search,
        subject=subject,
        denominator=denominator,
        seconds=ctx.setting.measurement.seconds_per_candidate / 2,
        seed=ctx.seed + repeat,
        bundles=tuple(ctx.trees.bundle(c) for c in sorted({a.commit for a in arms})),
        stop_losers=False,
    )
