"""A/A calibration: what stock's own answers look like when stock token-forces them.

Two batches are forced: answers of stock without speculation (`ar`, one row a step) and with it
(`stock`, k + 1 rows a step). Worst gap: over both, and over how far any gap moves when stock forces
the same answers with other row counts a pass (`verifier.numeric_noise`). Near-tie rate: of `stock`
alone, the arm a candidate is compared with; where both arms gave the same text their near-ties are
the same events, so adding `ar` would count them twice. First form: page borders and restarts are
not swept yet.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from settings.schema import Setting
from verifier.errors import CalibrationError
from verifier.margins import Unit
from verifier.numeric_noise import NumericNoise
from verifier.policy import MarginPolicy
from verifier.proportions import (
    Rate,
    design_effect,
    detection_tokens,
    noninferiority_tokens,
    wilson,
)
from verifier.report import ForcingReport

# Least and greatest gap a calibration may allow. One ULP from rounding either value makes 2 the
# least that two honest BF16 paths need; 8 ULPs are a whole nat in [16, 32): no rounding, a bug.
LEAST_GAP: dict[Unit, float] = {"bf16_ulp": 2.0, "nats": 0.25}
GREATEST_GAP: dict[Unit, float] = {"bf16_ulp": 8.0, "nats": 1.0}
LEAST_DELTA = 0.01
# Planned above the 95 % that an honest candidate is promised: estimating the design effects costs
# up to two points (simulated in tests/verifier/test_judgement.py).
POWER = 0.97


@dataclass(frozen=True)
class ArmSample:
    """One arm's answers forced on stock: (request id, fresh tokens, near-ties among them) each."""

    arm: str
    answers: tuple[tuple[str, int, int], ...]
    worst_gap: float

    @property
    def rate(self) -> Rate:
        return Rate(sum(x for _, _, x in self.answers), sum(n for _, n, _ in self.answers))

    @property
    def design_effect(self) -> float:
        return design_effect([Rate(x, n) for _, n, x in self.answers])


@dataclass(frozen=True)
class Calibration:
    """`exact`: stock is FP32. `evidence` says on what, where and when it was taken (JSON)."""

    setting: str
    exact: bool
    unit: Unit
    ar: ArmSample
    stock: ArmSample
    evidence: dict[str, Any]
    noise: NumericNoise | None = None

    @property
    def worst_gap(self) -> float:
        """The worst flip seen, or the worst change of any gap between row shapes if greater."""
        noise = 0.0 if self.noise is None else self.noise.worst
        return max(self.ar.worst_gap, self.stock.worst_gap, noise)

    def summary(self) -> dict[str, Any]:
        """The numbers a verdict quotes, JSON-serialisable."""
        low, high = wilson(self.stock.rate)
        return {
            "setting": self.setting,
            "unit": self.unit,
            "worst_gap": self.worst_gap,
            "worst_flip": max(self.ar.worst_gap, self.stock.worst_gap),
            "noise": None if self.noise is None else asdict(self.noise),
            "near_ties": int(self.stock.rate.events),
            "tokens": int(self.stock.rate.trials),
            "near_tie_rate": self.stock.rate.value,
            "near_tie_rate_wilson95": [low, high],
            "design_effect": self.stock.design_effect,
            "ar_near_ties": int(self.ar.rate.events),
            "ar_tokens": int(self.ar.rate.trials),
        }

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "summary": self.summary()}


def calibrate(
    setting: Setting,
    ar: ForcingReport,
    stock: ForcingReport,
    evidence: dict[str, Any] | None = None,
    noise: NumericNoise | None = None,
) -> Calibration:
    """Turn the two forced batches into a calibration.

    BF16 batches are scored under `policy.unlimited`, FP32 ones under `exact_policy`.

    Raises:
        CalibrationError: stock's own answers end wrongly, are not finite, or lie further from
            stock's choice than rounding explains: no candidate can be judged by such a stock.
    """
    exact = setting.target.weights_dtype == "fp32"
    for name, report in (("ar", ar), ("stock", stock)):
        bad = report.first_bad
        if bad is not None:
            raise CalibrationError(
                f"A/A of {setting.name}: stock refuses its own {name} answer {bad.request_id} "
                f"at position {bad.first_bad_position} ({bad.mismatches} mismatches, end: "
                f"{bad.end_reason})",
                "repair the stock engine or its forcing before any search",
            )
        if not exact and report.worst_gap_ulps > GREATEST_GAP[report.unit]:
            raise CalibrationError(
                f"A/A of {setting.name}: stock is {report.worst_gap_ulps:g} {report.unit} from its "
                f"own choice in {name}, more than {GREATEST_GAP[report.unit]:g}",
                "a gap that wide is a bug of the stock engine, not rounding",
            )
    if noise is not None and not noise.worst <= GREATEST_GAP[stock.unit]:
        raise CalibrationError(
            f"A/A of {setting.name}: stock's gaps move by {noise.worst:g} {stock.unit} when only "
            f"the rows of a pass change, more than {GREATEST_GAP[stock.unit]:g}",
            "noise that wide is a bug of the stock engine, not rounding",
        )
    if ar.unit != stock.unit:
        raise CalibrationError(f"A/A of {setting.name}: {ar.unit} and {stock.unit} in one go")
    return Calibration(
        setting=setting.name,
        exact=exact,
        unit=stock.unit,
        ar=_sample("ar", ar),
        stock=_sample("stock", stock),
        evidence=dict(evidence or {}),
        noise=noise,
    )


def _sample(arm: str, report: ForcingReport) -> ArmSample:
    rows = tuple((r.request_id, r.fresh_tokens, r.fresh_near_ties) for r in report.rows)
    return ArmSample(arm, rows, report.worst_gap_ulps)


def exact_policy(detect_one_in: int = 1000) -> MarginPolicy:
    """FP32: every token the argmax; a tie within FP32's own noise is counted, not refused."""
    return MarginPolicy(
        kind="exact",
        unit="bf16_ulp",
        allowed_gap=0.0,
        delta=None,
        min_tokens=0,
        detect_one_in=detect_one_in,
        min_tokens_detect=detection_tokens(1 / detect_one_in),
        requires_exact=False,
        source="FP32: no mismatch; ties below the numeric floor are counted apart",
    )


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
        return exact_policy(detect_one_in)
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
            f"{calibration.worst_gap:g} {calibration.unit}, design effect {design:.2f}; power "
            f"{power:.0%} for a candidate as good as stock"
        ),
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


def calibration_from_json(data: dict[str, Any]) -> Calibration:
    """Inverse of `Calibration.to_json`.

    Raises:
        CalibrationError: fields are missing or of the wrong kind.
    """

    def sample(value: dict[str, Any]) -> ArmSample:
        rows = tuple((str(i), int(n), int(x)) for i, n, x in value["answers"])
        return ArmSample(str(value["arm"]), rows, float(value["worst_gap"]))

    try:
        unit: Unit = "nats" if data["unit"] == "nats" else "bf16_ulp"
        return Calibration(
            setting=str(data["setting"]),
            exact=bool(data["exact"]),
            unit=unit,
            ar=sample(data["ar"]),
            stock=sample(data["stock"]),
            evidence=dict(data["evidence"]),
            noise=None if data.get("noise") is None else _noise(data["noise"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise CalibrationError(f"not a calibration: {error!r}", "calibrate again") from error


def _noise(data: dict[str, Any]) -> NumericNoise:
    return NumericNoise(
        float(data["worst"]), float(data["high"]), int(data["positions"]), tuple(data["shapes"])
    )


def save_calibration(calibration: Calibration, path: Path) -> None:
    """Write atomically as JSON."""
    temporary = path.with_suffix(".tmp")
    temporary.write_text(json.dumps(calibration.to_json(), indent=1))
    temporary.replace(path)


def load_calibration(path: Path) -> Calibration:
    """Read what `save_calibration` wrote; CalibrationError when it is not one."""
    try:
        data = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise CalibrationError(f"{path}: {error}", "calibrate again") from error
    if not isinstance(data, dict):
        raise CalibrationError(f"{path}: not a calibration", "calibrate again")
    return calibration_from_json(data)
