"""What a calibration allows and why, in sentences: for the calibration's JSON and for reports."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from settings.schema import Setting
from verifier.calibration import LEAST_GAP, Calibration
from verifier.errors import CalibrationError
from verifier.margins import bf16_ulp
from verifier.policy import MarginPolicy
from verifier.thresholds import policy_for

_UNITS = {"bf16_ulp": "BF16 ULPs", "nats": "nats"}


def policy_in_words(policy: MarginPolicy) -> list[str]:
    """The rules of one policy, each with its number."""
    detection = (
        f"At least {policy.min_tokens_detect} distinct tokens must be checked: in so many, one "
        f"wrong token in {policy.detect_one_in} is met with 95 %."
    )
    if policy.kind == "exact":
        return [
            "FP32: every token must be stock's own choice; values that FP32 sums cannot tell "
            "apart count as one.",
            detection,
        ]
    sentences = [
        f"A token may lie at most {policy.allowed_gap:g} {_UNITS[policy.unit]} below stock's best "
        "one; anything further is not lossless."
    ]
    if policy.least_magnitude:
        sentences.append(
            "A ULP is that of the best value, or of stock's usual best value where that is larger: "
            f"{bf16_ulp(policy.least_magnitude):g} at {policy.least_magnitude:g}."
        )
    if policy.delta is not None:
        sentences.append(
            f"Near-ties may not be more frequent than stock's own by delta = {policy.delta:.2%}: "
            "the upper 95 % bound of candidate minus stock must lie below it over at least "
            f"N = {policy.min_tokens} distinct tokens, else the verdict is inconclusive."
        )
    return [*sentences, f"Where these come from: {policy.source}.", detection]


def calibration_in_words(calibration: Calibration) -> list[str]:
    """What stock showed against itself."""
    rate, unit = calibration.stock.rate, _UNITS[calibration.unit]
    if calibration.exact:
        first = f"Stock against itself in FP32: {rate.trials:.0f} tokens without a mismatch."
    else:
        worst = max(calibration.shapes, key=lambda row: row.worst, default=None)
        where = "" if worst is None else f", in {worst.shape}"
        first = (
            f"Stock against itself: worst gap {calibration.worst_gap:g} {unit}{where} (at least "
            f"{LEAST_GAP[calibration.unit]:g} is allowed), {rate.events:.0f} near-ties in "
            f"{rate.trials:.0f} tokens ({rate.value:.2%})."
        )
    rows = [
        f"{row.shape} ({row.path}): {row.tokens} tokens, {row.near_ties} near-ties "
        f"({row.near_tie_rate:.2%}), worst gap {row.worst_gap:g}, gaps move by up to "
        f"{row.worst_change:g} {unit}."
        for row in calibration.shapes
    ]
    return [first, *rows]


def thresholds_in_words(
    setting: Setting, calibration: Calibration, looks: Mapping[str, Mapping[str, Any]]
) -> dict[str, list[str]]:
    """The rules of each look (`policy_for`'s options by name), or why there are none yet."""
    found = {"stock": calibration_in_words(calibration)}
    for name, options in looks.items():
        try:
            found[name] = policy_in_words(policy_for(setting, calibration, **options))
        except CalibrationError as error:
            found[name] = [str(error)]
    return found
