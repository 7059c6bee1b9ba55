"""How far stock's own logits move when only the number of rows in a forward pass changes.

A lossless engine may pick another token than the forcing pass only if the gap between the two, as
forcing sees it, is within what rounding moves such gaps by. Flips are rare (one position in a
hundred), so the worst flip of a small calibration says little about the worst one possible; every
position's gaps, compared between row shapes, say it a hundred times better.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from verifier.forced import Position
from verifier.margins import Unit, gap


@dataclass(frozen=True)
class NumericNoise:
    """`worst` and `high` (99.9th percentile) change of a gap, in the calibration's unit, over
    `positions` forced in each of `shapes` (names such as `8 rows`) and in the forcing shape."""

    worst: float
    high: float
    positions: int
    shapes: tuple[str, ...]


def gap_changes(a: Position, b: Position, unit: Unit) -> list[float]:
    """|gap of x over y in `a` - the same in `b`| for every two tokens in both top lists."""
    other = dict(b.top)
    shared = [(token, value) for token, value in a.top if token in other]
    top = max((value for _, value in a.top), default=0.0)
    return [
        gap(top, top - abs((x - y) - (other[i] - other[j])), unit)
        for (i, x), (j, y) in combinations(shared, 2)
    ]


def numeric_noise(
    forced: Sequence[Sequence[Position]],
    shaped: Mapping[str, Sequence[Sequence[Position]]],
    unit: Unit,
) -> NumericNoise:
    """Compares the same answers forced in the forcing shape and in each of `shaped`."""
    changes = [
        change
        for answers in shaped.values()
        for base, other in zip(forced, answers, strict=True)
        for a, b in zip(base, other, strict=True)
        for change in gap_changes(a, b, unit)
    ]
    changes.sort()
    return NumericNoise(
        worst=changes[-1] if changes else 0.0,
        high=changes[min(len(changes) - 1, int(0.999 * len(changes)))] if changes else 0.0,
        positions=sum(len(answer) for answer in forced),
        shapes=tuple(shaped),
    )
