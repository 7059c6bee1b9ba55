"""A/A calibration: what stock's own answers look like when stock token-forces them.

Two batches are forced: answers of stock without speculation (`ar`, one row a step) and with it
(`stock`, k + 1 rows a step). Near-tie rate: of `stock` alone, the arm a candidate is compared with;
where both arms gave the same text their near-ties are the same events, so adding `ar` would count
them twice. Worst gap: over both, and over every other shape stock was forced in (`verifier.sweep`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from settings.schema import Setting
from verifier.errors import CalibrationError
from verifier.margins import Unit
from verifier.proportions import Rate, design_effect, wilson
from verifier.report import ForcingReport
from verifier.shapes import ShapeRow, generated_row

# Least and greatest gap a calibration may allow. One ULP from rounding either value makes 2 the
# least that two honest BF16 paths need; 8 ULPs are a whole nat in [16, 32): no rounding, a bug.
LEAST_GAP: dict[Unit, float] = {"bf16_ulp": 2.0, "nats": 0.25}
GREATEST_GAP: dict[Unit, float] = {"bf16_ulp": 8.0, "nats": 1.0}


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
    """`exact`: stock is FP32. `shapes` holds a row for each shape stock was seen in, the two arms
    first. `evidence` says on what, where and when it was taken (JSON). `least_magnitude`: how large
    stock's best logits usually are; 0 in FP32 and in nats."""

    setting: str
    exact: bool
    unit: Unit
    ar: ArmSample
    stock: ArmSample
    evidence: dict[str, Any]
    shapes: tuple[ShapeRow, ...] = ()
    least_magnitude: float = 0.0

    @property
    def worst_gap(self) -> float:
        """The worst flip seen in any shape, or the worst change of any gap if that is greater."""
        return max(self.ar.worst_gap, self.stock.worst_gap, *(row.worst for row in self.shapes))

    def summary(self) -> dict[str, Any]:
        """The numbers a verdict quotes, JSON-serialisable."""
        low, high = wilson(self.stock.rate)
        return {
            "setting": self.setting,
            "unit": self.unit,
            "least_magnitude": self.least_magnitude,
            "worst_gap": self.worst_gap,
            "worst_flip": max(self.ar.worst_gap, self.stock.worst_gap),
            "near_ties": int(self.stock.rate.events),
            "tokens": int(self.stock.rate.trials),
            "near_tie_rate": self.stock.rate.value,
            "near_tie_rate_wilson95": [low, high],
            "design_effect": self.stock.design_effect,
            "ar_near_ties": int(self.ar.rate.events),
            "ar_tokens": int(self.ar.rate.trials),
            "shapes": [row.to_json() for row in self.shapes],
        }


def calibrate(
    setting: Setting,
    ar: ForcingReport,
    stock: ForcingReport,
    evidence: dict[str, Any] | None = None,
    shapes: Sequence[ShapeRow] = (),
    least_magnitude: float = 0.0,
) -> Calibration:
    """Turn the two forced batches, and what other shapes showed, into a calibration.

    BF16 batches are scored under `policy.unlimited` with that least magnitude, FP32 ones under
    `exact_policy`.

    Raises:
        CalibrationError: stock's own answers end wrongly, are not finite, or lie further from
            stock's choice than rounding explains: no candidate can be judged by such a stock.
    """
    exact = setting.target.weights_dtype == "fp32"
    if ar.unit != stock.unit:
        raise CalibrationError(f"A/A of {setting.name}: {ar.unit} and {stock.unit} in one go")
    for name, report in (("ar", ar), ("stock", stock)):
        bad = report.first_bad
        if bad is not None:
            raise CalibrationError(
                f"A/A of {setting.name}: stock refuses its own {name} answer {bad.request_id} "
                f"at position {bad.first_bad_position} ({bad.mismatches} mismatches, end: "
                f"{bad.end_reason})",
                "repair the stock engine or its forcing before any search",
            )
    rows = (
        generated_row("ar", "1 row a step", ar),
        generated_row("stock", "k + 1 rows a step", stock),
        *shapes,
    )
    for row in rows:
        _check_row(setting.name, exact, stock.unit, row)
    return Calibration(
        setting=setting.name,
        exact=exact,
        unit=stock.unit,
        ar=_sample("ar", ar),
        stock=_sample("stock", stock),
        evidence=dict(evidence or {}),
        shapes=rows,
        least_magnitude=least_magnitude,
    )


def _check_row(setting: str, exact: bool, unit: Unit, row: ShapeRow) -> None:
    if row.mismatches:
        raise CalibrationError(
            f"A/A of {setting}: in {row.shape} stock makes {row.mismatches} choices of "
            f"{row.tokens} that it does not make itself",
            "rounding does not explain that: repair the stock engine before any search",
        )
    if exact:
        return
    if not row.worst_gap <= GREATEST_GAP[unit]:
        raise CalibrationError(
            f"A/A of {setting}: stock is {row.worst_gap:g} {unit} from its own choice in "
            f"{row.shape}, more than {GREATEST_GAP[unit]:g}",
            "a gap that wide is a bug of the stock engine, not rounding",
        )
    if not row.worst_change <= GREATEST_GAP[unit]:
        raise CalibrationError(
            f"A/A of {setting}: stock's gaps move by {row.worst_change:g} {unit} in {row.shape}, "
            f"more than {GREATEST_GAP[unit]:g}",
            "noise that wide is a bug of the stock engine, not rounding",
        )


def _sample(arm: str, report: ForcingReport) -> ArmSample:
    rows = tuple((r.request_id, r.fresh_tokens, r.fresh_near_ties) for r in report.rows)
    return ArmSample(arm, rows, report.worst_gap_ulps)
