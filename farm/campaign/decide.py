"""From measurements to a verdict: pure functions, no I/O, every branch says why."""

from __future__ import annotations

import math

from farm.campaign.jobs import Job, MeasureJob, MeasureOutcome, Outcome, VerifyOutcome
from farm.results import RatioInterval
from farm.verdicts import Decision, Verdict

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
    evidence: dict[str, object] = {"status": outcome.status, "arm": outcome.blamed}
    if outcome.blamed != subject or outcome.status not in _FAILED:
        return Decision(Verdict.INVALID_ENVIRONMENT, outcome.error or outcome.status, evidence)
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
    return Decision(verdicts[verified.status], verified.reason, verified.evidence)


def faster(ratio: RatioInterval, floor: float) -> Decision:
    """Speed alone: accepted when the whole interval lies above the A/A floor."""
    span = f"x{ratio.ratio:.3f} [{ratio.low:.3f}, {ratio.high:.3f}]"
    evidence: dict[str, object] = {"ratio": ratio.ratio, "low": ratio.low, "high": ratio.high}
    evidence["floor"] = floor
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


def decide(
    outcome: MeasureOutcome,
    ratio: RatioInterval | None,
    verified: VerifyOutcome | None,
    floor: float,
    subject: str = "candidate",
) -> Decision:
    """The verdict of one candidate: failure, then losslessness, then speed.

    A clear loser (dropped early) is `not_faster` even if its tokens were never forced.
    """
    if (failure := failed(outcome, subject)) is not None:
        return failure
    if verified is not None and (lossy := not_lossless(verified)) is not None:
        return lossy
    if ratio is None:
        return Decision(Verdict.INCONCLUSIVE, "the timed answers hold no ratio")
    speed = faster(ratio, floor)
    if outcome.clear_loser and speed.verdict is not Verdict.NOT_FASTER:
        return Decision(Verdict.NOT_FASTER, f"dropped early: {speed.reason}", speed.evidence)
    if speed.verdict is not Verdict.ACCEPTED:
        return speed
    if verified is None:
        return Decision(Verdict.INVALID_ENVIRONMENT, "faster, but its tokens were not forced")
    if verified.status != "lossless":
        return Decision(Verdict.INCONCLUSIVE, verified.reason, speed.evidence | verified.evidence)
    return Decision(Verdict.ACCEPTED, speed.reason, speed.evidence | verified.evidence)
