"""`Workers` without Ray: jobs run in this process, one after the other, when waited for.

Used by `specfarm evaluate`, by tests, and wherever a cluster would be ceremony.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from farm.campaign.jobs import Job, MeasureJob, MeasureOutcome, Outcome, VerifyJob, VerifyOutcome


class LocalWorkers:
    """Runs each job with the function for its kind."""

    def __init__(
        self,
        measure: Callable[[MeasureJob], MeasureOutcome],
        verify: Callable[[VerifyJob], VerifyOutcome],
    ) -> None:
        self._measure = measure
        self._verify = verify
        self._jobs: deque[Job] = deque()

    @property
    def capacity(self) -> int:
        return 1

    @property
    def forcing_waits(self) -> bool:
        return False

    def submit(self, job: Job) -> None:
        self._jobs.append(job)

    def wait(self) -> tuple[Job, Outcome]:
        job = self._jobs.popleft()
        if isinstance(job, MeasureJob):
            return job, self._measure(job)
        return job, self._verify(job)
