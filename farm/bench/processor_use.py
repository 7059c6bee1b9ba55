"""Did an arm's processes use more processors than they were given?

Counted are user and system seconds of all its processes over the timed part, against the seconds
the arm ran: on other cores, or by a process that goes on while its engine is stopped for the other
arm's turn, they add up to more than its threads can.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from farm.bench.recording import Recording

# Over the threads given: a share, and seconds for what is not timed (a flush).
MORE = 1.15
SPARE_S = 1.0
# Over stock's processor time for the same answers, where the machine gives nobody a whole core.
MORE_THAN_STOCK = 1.5


@dataclass(frozen=True)
class ProcessorUse:
    """Seconds on processors and seconds of running, of candidate and stock."""

    threads: int
    spent_s: float
    ran_s: float
    stock_spent_s: float
    stock_ran_s: float

    @property
    def used(self) -> float:
        """Processors, on average."""
        return self.spent_s / self.ran_s

    @property
    def stock_used(self) -> float:
        return self.stock_spent_s / self.stock_ran_s

    @property
    def too_many(self) -> bool:
        """More than were given (and stock not: else the clocks of this machine cannot tell), or
        far more than stock used, in seconds and in processors."""
        most = self.threads * self.ran_s * MORE + SPARE_S
        stock_most = self.threads * self.stock_ran_s * MORE + SPARE_S
        if self.spent_s > most and self.stock_spent_s <= stock_most:
            return True
        return (
            self.spent_s > MORE_THAN_STOCK * self.stock_spent_s + SPARE_S
            and self.used > MORE_THAN_STOCK * self.stock_used
        )

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "used": self.used, "stock_used": self.stock_used}


def processor_use(
    recording: Recording, spent_s: dict[str, float], threads: int, numerator: str, denominator: str
) -> ProcessorUse | None:
    """None where nothing was counted, or requests overlapped and their seconds with them."""
    if any(run.block is not None for run in recording.runs):
        return None
    ran = {label: _running_s(recording, label) for label in (numerator, denominator)}
    spent = {label: spent_s.get(label, 0.0) for label in ran}
    if min(*ran.values(), *spent.values()) <= 0.0:
        return None
    return ProcessorUse(
        threads, spent[numerator], ran[numerator], spent[denominator], ran[denominator]
    )


def _running_s(recording: Recording, arm: str) -> float:
    return sum(
        sum(s.end_s - s.start_s for s in run.slices) if run.slices else run.wall_s[-1]
        for run in recording.runs
        if run.arm == arm
    )
