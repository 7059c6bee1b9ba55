"""How far a committed token lies below stock's best one, in BF16 units in the last place (ULPs).

BF16 keeps 8 significant bits, so in [2^e, 2^(e+1)) neighbours are 2^(e-7) apart: 0.125 in [16, 32),
0.25 in [32, 64). Values are compared, never ids: at an exact tie any of the tied tokens is stock's
choice.

A logit is a sum over a hidden state that was itself rounded: what rounding moves it by follows the
size of the terms, not of their sum, and is as large where the best logit happens to be small. ULPs
are therefore never taken finer than at the magnitude that stock's best logits usually have
(docs/losslessness.md has the measurement).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Literal

MIN_NORMAL_EXPONENT = -126
SIGNIFICAND_BITS = 7

Unit = Literal["bf16_ulp", "nats"]


def bf16_ulp(value: float) -> float:
    """Spacing of BF16 at |value|: 2^(floor(log2 |value|) - 7), 2^-133 for zero and subnormals.

    Raises:
        ValueError: value is NaN or infinite.
    """
    if not math.isfinite(value):
        raise ValueError(f"no BF16 spacing at {value}")
    exponent = math.frexp(value)[1] - 1 if value else MIN_NORMAL_EXPONENT
    return math.ldexp(1.0, max(exponent, MIN_NORMAL_EXPONENT) - SIGNIFICAND_BITS)


def usual_magnitude(tops: Sequence[float]) -> float:
    """The median magnitude of finite best values; 0 of none."""
    return statistics.median([abs(top) for top in tops if math.isfinite(top)] or [0.0])


def gap(top: float, token: float, unit: Unit, least_magnitude: float = 0.0) -> float:
    """Distance of `token` below `top` in `unit`; ULPs are taken at the magnitude of `top`, or at
    `least_magnitude` where that is greater.

    `nats` is the plain difference, for engines that serve log-probabilities. Infinite when either
    value is NaN or infinite: a comparison with NaN is false and would let anything through.
    """
    if not (math.isfinite(top) and math.isfinite(token)):
        return math.inf
    difference = max(top - token, 0.0)
    if unit == "nats":
        return difference
    return difference / bf16_ulp(max(abs(top), least_magnitude))
