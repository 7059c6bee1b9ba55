"""The shrunken ratio of every screened candidate, beside the measured one."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace

from farm.results import CandidateResult, RatioInterval
from farm.statistics.shrinkage import shrunken
from farm.verdicts import Verdict

_SCREENED = (Verdict.ACCEPTED, Verdict.NOT_FASTER, Verdict.INCONCLUSIVE)
_NORMAL_975 = 1.959964


def with_shrunken(rows: Iterable[CandidateResult]) -> tuple[CandidateResult, ...]:
    """The rows in their order; those timed in the same round against the same baseline are shrunk
    together, on what was measured, and the composed ratio to stock is moved as far. Planted
    candidates, failures and engines that are not lossless are no sample of honest effects and are
    left out."""
    rows = tuple(rows)
    rounds: dict[tuple[int, str], list[CandidateResult]] = defaultdict(list)
    for row in rows:
        if _counts(row) and row.to_baseline is not None:
            rounds[row.round, row.to_baseline.baseline].append(row)
    moved: dict[str, float] = {}
    for members in rounds.values():
        measured = [row.to_baseline for row in members if row.to_baseline is not None]
        logs = [math.log(ratio.ratio) for ratio in measured]
        found = shrunken(logs, [_error(ratio) for ratio in measured])
        for row, raw, shrunk in zip(members, logs, found, strict=True):
            moved[row.candidate_id] = float(shrunk) - raw
    return tuple(
        replace(row, ratio_shrunken=row.to_stock.ratio * math.exp(moved[row.candidate_id]))
        if row.candidate_id in moved and row.to_stock is not None
        else row
        for row in rows
    )


def _counts(row: CandidateResult) -> bool:
    ratio = row.to_baseline
    return (
        row.kind in ("mechanism", "merge")
        and row.decision.verdict in _SCREENED
        and ratio is not None
        and all(0.0 < value < math.inf for value in (ratio.ratio, ratio.low, ratio.high))
        and ratio.high > ratio.low
    )


def _error(ratio: RatioInterval) -> float:
    """Standard error of the log-ratio; a t interval's is a little too large, which shrinks more."""
    return math.log(ratio.high / ratio.low) / (2.0 * _NORMAL_975)
