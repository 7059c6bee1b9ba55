"""How far a committed token lies below stock's best one, in BF16 units in the last place (ULPs).

BF16 keeps 8 significant bits, so in [2^e, 2^(e+1)) neighbours are 2^(e-7) apart: 0.125 in [16, 32),
0.25 in [32, 64). Values are compared, never ids: at an exact tie any of the tied tokens is stock's
choice.
"""

from __future__ import annotations

import math
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


def gap(top: float, token: float, unit: Unit) -> float:
    """Distance of `token` below `top` in `unit`; ULPs are taken at the magnitude of `top`.

    `nats` is the plain difference, for engines that serve log-probabilities. Infinite when either
    value is NaN or infinite: a comparison with NaN is false and would let anything through.
    """
    if not (math.isfinite(top) and math.isfinite(token)):
        return math.inf
    difference = max(top - token, 0.0)
    return difference / bf16_ulp(top) if unit == "bf16_ulp" else difference
