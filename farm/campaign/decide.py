"""From measurements to a verdict: pure functions, no I/O, every branch says why."""

from __future__ import annotations

import math
from dataclasses import replace

from farm.campaign.guard_case import Guarded
from farm.campaign.jobs import Job, MeasureJob, MeasureOutcome, Outcome, VerifyOutcome
from farm.results import RatioInterval
from farm.verdicts import Decision, Verdict

NOTHING_GUARDED = Guarded()
_CAUGHT_BY = {
    "crashed": "contract",
    "malformed": "contract",
    "timeout": "deadline",
    "out_of_memory": "memory",
}
_FAILED = {
    "crashed": Verdict.CRASHED,
    "timeout": Verdict.TIMEOUT,
    "malformed": Verdict.CRASHED,
    "out_of_memory": Verdict.INFEASIBLE,
}


def environment_fault(job: Job, outcome: Outcome) -> str | None:
    """Why `outcome` says nothing about an engine under test, so that the unit may be tried again;
    None when it is a finding. Stock, AR and the reference are trusted: where they fail, the
    machine is at fault, even if one of them is the job's subject."""
    if isinstance(outcome, VerifyOutcome):
        return outcome.reason if outcome.status == "invalid_environment" else None
    if outcome.status == "ok":
        return None
    tested = isinstance(job, MeasureJob) and any(
        spec.label == job.subject and spec.arm in ("candidate", "final") for spec in job.arms
    )
    if tested and isinstance(job, MeasureJob):
        decision = failed(outcome, job.subject)
        if decision is None or decision.verdict is not Verdict.INVALID_ENVIRONMENT:
            return None
    return outcome.error or outcome.status


def failed(outcome: MeasureOutcome, subject: str) -> Decision | None:
    """The verdict of a measurement that did not come to its end; None when it did.

    Only a failure of `subject` itself counts against it: when another arm or the machine failed,
    the environment is at fault and the candidate may be measured again.
    """
    if outcome.status == "ok":
        return None
    evidence: dict[str, object] = {
        "status": outcome.status,
        "arm": outcome.blamed,
        "caught_by": "environment",
    }
    if outcome.blamed != subject or outcome.status not in _FAILED:
        return Decision(Verdict.INVALID_ENVIRONMENT, outcome.error or outcome.status, evidence)
    evidence["caught_by"] = _CAUGHT_BY[outcome.status]
    return Decision(_FAILED[outcome.status], outcome.error, evidence)


def not_lossless(verified: VerifyOutcome) -> Decision | None:
    """The verdict token forcing imposes whatever the speed; None when the answers are lossless or
    not yet decided."""
    verdicts = {
        "not_lossless": Verdict.NOT_LOSSLESS,
        "cheating": Verdict.CHEATING,
        "invalid_environment": Verdict.INVALID_ENVIRONMENT,
    }
    if verified.status not in verdicts:
        return None
    verdict = verdicts[verified.status]
    by = "environment" if verdict is Verdict.INVALID_ENVIRONMENT else "token_forcing"
    return Decision(verdict, verified.reason, {"caught_by": by, **verified.evidence})


def faster(ratio: RatioInterval, floor: float) -> Decision:
    """Speed alone: accepted when the whole interval lies above the A/A floor."""
    span = f"x{ratio.ratio:.3f} [{ratio.low:.3f}, {ratio.high:.3f}]"
    if ratio.confidence != 0.95:
        span += f" ({100 * ratio.confidence:.4g} %)"
    evidence: dict[str, object] = {"ratio": ratio.ratio, "low": ratio.low, "high": ratio.high}
    evidence |= {"floor": floor, "confidence": ratio.confidence}
    if not all(map(math.isfinite, (ratio.ratio, ratio.low, ratio.high, floor))):
        reason = f"{span} to {ratio.baseline} is not an interval"
        return Decision(Verdict.INCONCLUSIVE, reason, evidence)
    if ratio.low > floor:
        reason = f"{span} to {ratio.baseline}, above the A/A floor {floor:.3f}"
        return Decision(Verdict.ACCEPTED, reason, evidence)
    if ratio.high < max(floor, 1.0):
        reason = f"{span} to {ratio.baseline}: not above the A/A floor {floor:.3f}"
        return Decision(Verdict.NOT_FASTER, reason, evidence)
    reason = f"{span} to {ratio.baseline}: the interval reaches across the A/A floor {floor:.3f}"
    return Decision(Verdict.INCONCLUSIVE, reason, evidence)


def withheld(decision: Decision, why: str) -> Decision:
    """What is left of a verdict where the machine cannot compare engines: nothing is accepted;
    losers, failures and findings of token forcing stand."""
    if decision.verdict is not Verdict.ACCEPTED:
        return decision
    reason = f"{why}; otherwise: {decision.reason}"
    evidence = {**decision.evidence, "caught_by": "aa_placebo"}
    return Decision(Verdict.INVALID_ENVIRONMENT, reason, evidence)


def decide(
    outcome: MeasureOutcome,
    ratio: RatioInterval | None,
    verified: VerifyOutcome | None,
    floor: float,
    subject: str = "candidate",
    guarded: Guarded = NOTHING_GUARDED,
) -> Decision:
    """The verdict of one candidate: guards that refuse, failure, losslessness, speed, guards in
    doubt. Evidence names in `caught_by` the check that kept it from being accepted.

    What was dropped early is never accepted, even if its tokens were never forced: a clear loser is
    `not_faster`, what could not reach the floor any more `not_faster` or `inconclusive`.
    """
    found = guarded.decision
    if found is not None and found.verdict is not Verdict.INCONCLUSIVE:
        return found
    decision = _measured(outcome, ratio, verified, floor, subject)
    if decision.verdict is Verdict.ACCEPTED and found is not None:
        decision = Decision(found.verdict, found.reason, decision.evidence | found.evidence)
    if not guarded.evidence:
        return decision
    return replace(decision, evidence={**decision.evidence, "guards": dict(guarded.evidence)})


def _measured(
    outcome: MeasureOutcome,
    ratio: RatioInterval | None,
    verified: VerifyOutcome | None,
    floor: float,
    subject: str,
) -> Decision:
    if (failure := failed(outcome, subject)) is not None:
        return failure
    if verified is not None and (lossy := not_lossless(verified)) is not None:
        return lossy
    if ratio is None:
        reason = "the timed answers hold no ratio"
        return Decision(Verdict.INCONCLUSIVE, reason, {"caught_by": "speed"})
    speed = faster(ratio, floor)
    late: dict[str, object] = speed.evidence | {"caught_by": "speed"}
    if outcome.clear_loser and speed.verdict is not Verdict.NOT_FASTER:
        return Decision(Verdict.NOT_FASTER, f"dropped early: {speed.reason}", late)
    if outcome.out_of_reach and speed.verdict is not Verdict.NOT_FASTER:
        reason = f"dropped early, out of reach: {speed.reason}"
        return Decision(Verdict.INCONCLUSIVE, reason, late)
    if speed.verdict is not Verdict.ACCEPTED:
        return replace(speed, evidence=late)
    if verified is None:
        evidence = speed.evidence | {"caught_by": "environment"}
        reason = "faster, but its tokens were not forced"
        return Decision(Verdict.INVALID_ENVIRONMENT, reason, evidence)
    both: dict[str, object] = speed.evidence | verified.evidence
    if verified.status != "lossless":
        evidence = {"caught_by": "token_forcing", **both}
        return Decision(Verdict.INCONCLUSIVE, verified.reason, evidence)
    return Decision(Verdict.ACCEPTED, speed.reason, both)
