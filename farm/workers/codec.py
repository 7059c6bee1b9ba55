"""Outcomes to JSON and back, for the ledger."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from farm.campaign.jobs import Job, MeasureJob, MeasureOutcome, Outcome, VerifyOutcome


def encode_outcome(outcome: Outcome) -> dict[str, Any]:
    return asdict(outcome)


def decode_outcome(job: Job, data: dict[str, Any]) -> Outcome:
    if isinstance(job, MeasureJob):
        return MeasureOutcome(**data)
    return VerifyOutcome(**data)
