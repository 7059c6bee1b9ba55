"""The table of an estimator study: what each estimator made of each recording."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from farm.bench.errors import MeasurementError
from farm.bench.estimate import estimate
from farm.bench.estimators import ESTIMATORS
from farm.bench.recording import Recording

DISTINCT = tuple(name for name in ESTIMATORS if name != "quiet_time")


@dataclass(frozen=True)
class StudyRow:
    """`planted` is the share by which `slowed` is slower; `log_ratio` is ln(stock / slowed speed),
    so the truth is ln(1 + planted). `decided`: faster, slower, or undecided; of stock."""

    mode: str
    estimator: str
    planted: float
    truth: float
    log_ratio: float
    low: float
    high: float
    decided: str
    seconds: float

    @property
    def half_width(self) -> float:
        return (self.high - self.low) / 2


def rows_of(
    recording: Recording, planted: float, estimators: Sequence[str] = DISTINCT
) -> list[StudyRow]:
    """Every estimator on one recording of arms `stock` and `slowed`. An estimator that cannot be
    applied is left out."""
    rows = []
    for name in estimators:
        try:
            r = estimate(recording, "stock", "slowed", name).ratio
        except MeasurementError:
            continue
        low, high = math.log(r.low), math.log(r.high)
        decided = "faster" if low > 0 else "slower" if high < 0 else "undecided"
        rows.append(
            StudyRow(
                recording.mode,
                name,
                planted,
                math.log1p(planted),
                math.log(r.ratio),
                low,
                high,
                decided,
                recording.seconds,
            )
        )
    return rows


def render(rows: Sequence[StudyRow]) -> str:
    """A Markdown table, by planted share, then mode, then width."""
    head = "| planted | mode | estimator | log-ratio | 95 % | truth | decided | seconds |"
    lines = [head, "|" + "---|" * 8]
    for row in sorted(rows, key=lambda r: (r.planted, r.mode, r.half_width)):
        lines.append(
            f"| {row.planted:.0%} | {row.mode} | {row.estimator} | {row.log_ratio:+.3f} | "
            f"[{row.low:+.3f}, {row.high:+.3f}] | {row.truth:+.3f} | {row.decided} | "
            f"{row.seconds:.0f} |"
        )
    return "\n".join(lines)
