"""One-job tasks with typed outcomes."""

from __future__ import annotations

from collections.abc import Generator

from farm.campaign.jobs import Job, MeasureJob, MeasureOutcome, Outcome, VerifyJob, VerifyOutcome


def measure(job: MeasureJob) -> Generator[Job, Outcome, MeasureOutcome]:
    """Yields `job`; returns its outcome."""
    outcome = yield job
    if not isinstance(outcome, MeasureOutcome):
        raise TypeError(f"{job.unit}: a measurement ended with {type(outcome).__name__}")
    return outcome


def verify(job: VerifyJob) -> Generator[Job, Outcome, VerifyOutcome]:
    """Yields `job`; returns its outcome."""
    outcome = yield job
    if not isinstance(outcome, VerifyOutcome):
        raise TypeError(f"{job.unit}: a verification ended with {type(outcome).__name__}")
    return outcome
