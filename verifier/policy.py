"""The margins one setting is judged by: how far below stock's best a token may lie, how often."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from verifier.margins import Unit
from verifier.proportions import detection_tokens

# FP32 prefill and decode sum in different orders: equal to about 1e-6 of a logit. Two logits
# closer than this floor are one value to FP32 arithmetic (docs/losslessness.md).
EXACT_RELATIVE_FLOOR = 1e-5
EXACT_LOGPROB_FLOOR = 1e-4


@dataclass(frozen=True)
class MarginPolicy:
    """What `judge` and `check_answer` allow.

    Attributes:
        kind: `exact` (FP32: nothing but numeric ties) or `near_tie` (BF16, FP8).
        unit: of `allowed_gap` and of every gap reported under this policy.
        allowed_gap: largest gap of a near-tie; 0 under `exact`.
        delta: margin of non-inferiority of the near-tie rate; None when no rate is tested.
        min_tokens: distinct tokens the rate needs.
        detect_one_in: the rate of wrong tokens, 1 / this, that must have been met with 95 %.
        min_tokens_detect: tokens that takes (the FP32 twin's count for other requests only).
        requires_exact: a report of the FP32 twin must be there, without a mismatch.
        source: where allowed_gap, delta and min_tokens come from.
        least_magnitude: ULPs are never taken finer than at this magnitude (`verifier.margins`).
    """

    kind: Literal["exact", "near_tie"]
    unit: Unit
    allowed_gap: float
    delta: float | None
    min_tokens: int
    detect_one_in: int
    min_tokens_detect: int
    requires_exact: bool
    source: str
    least_magnitude: float = 0.0


def numeric_floor(top: float, raw: bool) -> float:
    """Largest absolute difference that FP32 arithmetic cannot tell from a tie at `top`."""
    return EXACT_RELATIVE_FLOOR * max(abs(top), 1.0) if raw else EXACT_LOGPROB_FLOOR


def exact_policy(detect_one_in: int = 1000, unit: Unit = "bf16_ulp") -> MarginPolicy:
    """FP32: every token the argmax; a tie within FP32's own noise is counted, not refused."""
    return MarginPolicy(
        kind="exact",
        unit=unit,
        allowed_gap=0.0,
        delta=None,
        min_tokens=0,
        detect_one_in=detect_one_in,
        min_tokens_detect=detection_tokens(1 / detect_one_in),
        requires_exact=False,
        source="FP32: no mismatch; ties below the numeric floor are counted apart",
    )


def unlimited(unit: Unit, least_magnitude: float = 0.0) -> MarginPolicy:
    """Every finite gap is a near-tie: for calibration, which asks what stock itself does."""
    return MarginPolicy(
        kind="near_tie",
        unit=unit,
        allowed_gap=math.inf,
        delta=None,
        min_tokens=0,
        detect_one_in=1,
        min_tokens_detect=0,
        requires_exact=False,
        source="calibration in progress",
        least_magnitude=least_magnitude,
    )
