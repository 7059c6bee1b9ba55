"""Stock against itself in another shape: other rows a pass, more requests at once, other lengths.

A lossless engine may pick another token than the forcing pass only if the gap between the two, as
forcing sees it, is within what rounding moves such gaps by. Flips are rare (one position in a
hundred), so the worst flip of a small calibration says little about the worst one possible; every
position's gaps, compared between shapes, say it a hundred times better.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from verifier.forced import Position
from verifier.margins import gap
from verifier.policy import MarginPolicy
from verifier.report import ForcingReport, finite
from verifier.token_forcing import TokenClass, classify


@dataclass(frozen=True)
class ShapeRow:
    """What one shape showed; gaps are in the calibration's unit.

    `path` says how the numbers came about. `near_ties` are choices that are not the forcing pass's
    best, `worst_gap` the furthest below it. `worst_change` and `high_change` (99.9th percentile)
    are of any gap between two of a position's best tokens; 0 where the shape's own values are not
    known, only its choices. `mismatches` are choices rounding cannot explain.
    """

    shape: str
    path: str
    tokens: int
    near_ties: int
    worst_gap: float
    worst_change: float = 0.0
    high_change: float = 0.0
    mismatches: int = 0

    @property
    def near_tie_rate(self) -> float:
        return self.near_ties / self.tokens if self.tokens else 0.0

    @property
    def worst(self) -> float:
        """What a gap allowed for this shape must reach."""
        return max(self.worst_gap, self.worst_change)

    def to_json(self) -> dict[str, Any]:
        return {
            "shape": self.shape,
            "path": self.path,
            "tokens": self.tokens,
            "near_ties": self.near_ties,
            "near_tie_rate": self.near_tie_rate,
            "worst_gap": finite(self.worst_gap),
            "worst_change": finite(self.worst_change),
            "high_change": finite(self.high_change),
            "mismatches": self.mismatches,
        }


def row_from_json(data: dict[str, Any]) -> ShapeRow:
    """Inverse of `ShapeRow.to_json`; KeyError, TypeError or ValueError where it is none."""
    return ShapeRow(
        str(data["shape"]),
        str(data["path"]),
        int(data["tokens"]),
        int(data["near_ties"]),
        float(data["worst_gap"]),
        float(data["worst_change"]),
        float(data["high_change"]),
        int(data["mismatches"]),
    )


def generated_row(shape: str, path: str, report: ForcingReport) -> ShapeRow:
    """Answers that stock generated in that shape, as forcing sees them."""
    return ShapeRow(
        shape,
        path,
        report.fresh_tokens,
        sum(row.fresh_near_ties for row in report.rows),
        report.worst_gap_ulps,
        mismatches=report.mismatches,
    )


def forced_row(
    shape: str,
    path: str,
    base: Sequence[Sequence[Position]],
    other: Sequence[Sequence[Position]],
    policy: MarginPolicy,
) -> ShapeRow:
    """The same answers forced in the forcing shape (`base`) and in another."""
    pairs = [
        pair
        for answer, shaped in zip(base, other, strict=True)
        for pair in zip(answer, shaped, strict=True)
    ]
    found = [classify(_chosen(a, b), a, policy) for a, b in pairs]
    classes = [kind for kind, _ in found]
    changes = sorted(change for a, b in pairs for change in gap_changes(a, b, policy))
    return ShapeRow(
        shape,
        path,
        len(pairs),
        sum(kind in (TokenClass.NEAR_TIE, TokenClass.EXACT_TIE) for kind in classes),
        max((distance for _, distance in found), default=0.0),
        changes[-1] if changes else 0.0,
        changes[min(len(changes) - 1, int(0.999 * len(changes)))] if changes else 0.0,
        classes.count(TokenClass.MISMATCH),
    )


def _chosen(base: Position, other: Position) -> float | None:
    """The value in `base` of what `other` would choose; None where `base` does not list it."""
    best = next((token for token, _ in other.top), None)
    return next((value for token, value in base.top if token == best), None)


def gap_changes(a: Position, b: Position, policy: MarginPolicy) -> list[float]:
    """|gap of x over y in `a` - the same in `b`| for every two tokens in both top lists."""
    other = dict(b.top)
    shared = [(token, value) for token, value in a.top if token in other]
    top = max((value for _, value in a.top), default=0.0)
    return [
        gap(
            top,
            top - abs((x - y) - (other[i] - other[j])),
            policy.unit,
            policy.least_magnitude,
        )
        for (i, x), (j, y) in combinations(shared, 2)
    ]
