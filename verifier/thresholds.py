"""From a calibration to the margins a candidate is judged by: worst gap, delta, N."""

from __future__ import annotations

import math

from settings.schema import Setting
from verifier.calibration import LEAST_GAP, Calibration
from verifier.errors import CalibrationError
from verifier.policy import MarginPolicy, exact_policy
from verifier.proportions import Rate, detection_tokens, noninferiority_tokens

LEAST_DELTA = 0.01
# Planned above the 95 % that an honest candidate is promised: estimating the design effects costs
# up to two points (simulated in tests/verifier/test_judgement.py).
POWER = 0.97


def policy_for(
    setting: Setting,
    calibration: Calibration,
    *,
    detect_one_in: int = 1000,
    delta: float | None = None,
    power: float = POWER,
) -> MarginPolicy:
    """The policy that follows from a calibration.

    allowed_gap = the worst A/A gap, at least `LEAST_GAP`. delta = the A/A near-tie rate itself,
    at least 1 %: no more than a doubling goes through. min_tokens gives a candidate as good as
    stock `power` to pass.

    Raises:
        CalibrationError: it belongs to another setting, or has too few tokens for delta.
    """
    if calibration.setting != setting.name:
        raise CalibrationError(
            f"calibration of {calibration.setting} used for {setting.name}",
            f"calibrate {setting.name}",
        )
    if calibration.exact:
        return exact_policy(detect_one_in, calibration.unit)
    rate, design = calibration.stock.rate, calibration.stock.design_effect
    margin = max(LEAST_DELTA, rate.value) if delta is None else delta
    tokens = noninferiority_tokens(rate, margin, power=power, design=design)
    if tokens is None:
        wanted = _stock_tokens_needed(rate, margin, power, design)
        raise CalibrationError(
            f"A/A of {setting.name}: {rate.trials:.0f} stock tokens are too few to tell a rise of "
            f"{margin:.2%} in near-ties from chance",
            f"calibrate with about {wanted} tokens",
        )
    return MarginPolicy(
        kind="near_tie",
        unit=calibration.unit,
        allowed_gap=max(calibration.worst_gap, LEAST_GAP[calibration.unit]),
        delta=margin,
        min_tokens=tokens,
        detect_one_in=detect_one_in,
        min_tokens_detect=detection_tokens(1 / detect_one_in),
        requires_exact=True,
        source=(
            f"A/A: {rate.events:.0f} near-ties in {rate.trials:.0f} stock tokens, worst gap "
            f"{calibration.worst_gap:g} {calibration.unit} over {len(calibration.shapes)} shapes, "
            f"design effect {design:.2f}; power {power:.0%} for a candidate as good as stock"
        ),
        least_magnitude=calibration.least_magnitude,
    )


def _stock_tokens_needed(rate: Rate, delta: float, power: float, design: float) -> int:
    """Stock tokens (of the same rate) from which a candidate sample of that size would do."""
    tokens = max(int(rate.trials), 64)
    while tokens < 1_000_000:
        tokens = math.ceil(tokens * 1.25)
        need = noninferiority_tokens(
            Rate(rate.value * tokens, tokens), delta, power=power, design=design
        )
        if need is not None and need <= tokens:
            break
    return tokens
