"""The loop's view of whatever runs jobs: Ray actors in a campaign, plain calls in tests."""

from __future__ import annotations

from typing import Protocol

from farm.campaign.jobs import Job, Outcome


class Workers(Protocol):
    """Runs jobs somewhere. `submit` never blocks; `wait` returns one finished job."""

    @property
    def capacity(self) -> int:
        """How many measurements may run at once (devices)."""
        ...

    @property
    def forcing_waits(self) -> bool:
        """Whether forcing needs a device that measurements need: verifications then wait until one
        is free, count towards no capacity meanwhile, and share one launch of stock."""
        ...

    def submit(self, job: Job) -> None: ...

    def wait(self) -> tuple[Job, Outcome]:
        """Blocks until one submitted job has ended. A worker that died yields an outcome with
        status `crashed` or `invalid_environment`, never an exception."""
        ...
