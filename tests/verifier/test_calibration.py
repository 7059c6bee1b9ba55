import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from tests.verifier.settings_for_tests import tiny
from verifier.calibration import Calibration, calibrate
from verifier.calibration_file import (
    calibration_from_json,
    load_calibration,
    save_calibration,
)
from verifier.errors import CalibrationError
from verifier.report import ForcingReport
from verifier.shapes import ShapeRow
from verifier.thresholds import policy_for
from verifier.token_forcing import AnswerCheck
from verifier.words import thresholds_in_words


def row(name: str, tokens: int, gaps: tuple[float, ...] = (), **fields: object) -> AnswerCheck:
    base = AnswerCheck(
        request_id=name,
        tokens_checked=tokens,
        mismatches=0,
        near_ties=len(gaps),
        exact_ties=0,
        not_finite=0,
        worst_gap_ulps=max(gaps, default=0.0),
        first_bad_position=None,
        end_ok=True,
        end_reason="length limit reached",
        fresh_tokens=tokens,
        fresh_near_ties=len(gaps),
        gaps=gaps,
    )
    return replace(base, **fields)  # type: ignore[arg-type]


def batch(rows: int, tokens: int = 64, gaps: tuple[float, ...] = (1.0,)) -> ForcingReport:
    return ForcingReport(tuple(row(f"r{i}", tokens, gaps) for i in range(rows)), "bf16_ulp")


def calibrated(stock: ForcingReport, ar: ForcingReport | None = None) -> Calibration:
    return calibrate(tiny(), ar or batch(48), stock, {"prompts": "abc"})


def test_policy_follows_the_worst_gap_of_both_arms_with_two_ulps_at_least() -> None:
    assert policy_for(tiny(), calibrated(batch(48))).allowed_gap == 2.0
    wide = calibrated(batch(48), ar=batch(48, gaps=(3.0,)))
    policy = policy_for(tiny(), wide)
    assert policy.allowed_gap == 3.0
    assert policy.delta == pytest.approx(1 / 64)
    assert policy.requires_exact and policy.min_tokens > 500
    assert "48 near-ties in 3072" in policy.source


def test_rate_comes_from_the_speculative_arm_only() -> None:
    calibration = calibrated(batch(48, gaps=()), ar=batch(48))
    assert calibration.stock.rate.events == 0
    assert policy_for(tiny(), calibration).delta == 0.01


def test_a_stock_that_contradicts_itself_calibrates_nothing() -> None:
    with pytest.raises(CalibrationError, match="bug"):
        calibrated(batch(48, gaps=(8.5,)))
    bad = ForcingReport(
        (row("r7", 5, end_ok=False, end_reason="early stop", first_bad_position=5),), "bf16_ulp"
    )
    with pytest.raises(CalibrationError, match=r"r7.*position 5.*early stop"):
        calibrated(bad)


def test_too_small_a_calibration_says_how_much_is_needed() -> None:
    with pytest.raises(CalibrationError, match=r"calibrate with about (\d+) tokens") as error:
        policy_for(tiny(), calibrated(batch(8)))
    wanted = int(str(error.value).split("about ")[1].split()[0])
    policy_for(tiny(), calibrated(batch(wanted // 64 + 1)))


def test_policy_of_another_setting_is_refused() -> None:
    with pytest.raises(CalibrationError, match="tiny-fp32"):
        policy_for(tiny("fp32"), calibrated(batch(48)))


def test_fp32_allows_no_near_tie() -> None:
    clean = batch(4, gaps=())
    policy = policy_for(tiny("fp32"), calibrate(tiny("fp32"), clean, clean))
    assert (policy.kind, policy.allowed_gap, policy.requires_exact) == ("exact", 0.0, False)


def test_json_round_trip(tmp_path: Path) -> None:
    calibration = replace(calibrated(batch(48)), least_magnitude=27.875)
    assert policy_for(tiny(), calibration).least_magnitude == 27.875
    words = thresholds_in_words(tiny(), calibration, {"verify": {}})
    assert any("0.125 at 27.875" in sentence for sentence in words["verify"])
    save_calibration(calibration, tmp_path / "c.json")
    assert load_calibration(tmp_path / "c.json") == calibration
    data = json.loads((tmp_path / "c.json").read_text())
    assert data["summary"]["near_ties"] == 48
    for missing in ("least_magnitude", "stock"):
        del data[missing]
        with pytest.raises(CalibrationError, match=missing):
            calibration_from_json(data)
    (tmp_path / "c.json").write_text(json.dumps(data))
    with pytest.raises(CalibrationError, match=r"c\.json.*stock.*specfarm evaluate"):
        load_calibration(tmp_path / "c.json")
    (tmp_path / "c.json").write_text("[")
    with pytest.raises(CalibrationError):
        load_calibration(tmp_path / "c.json")


def shape(**fields: object) -> ShapeRow:
    base = ShapeRow("8 rows a pass", "a verify step's kernels", 1000, 4, 1.0, 3.5, 2.0)
    return replace(base, **fields)  # type: ignore[arg-type]


def test_the_worst_gap_is_over_every_shape_and_named_in_words() -> None:
    calibration = calibrate(tiny(), batch(48), batch(48), shapes=[shape()])
    assert [row.shape for row in calibration.shapes] == ["ar", "stock", "8 rows a pass"]
    assert calibration.worst_gap == 3.5
    assert policy_for(tiny(), calibration).allowed_gap == 3.5
    words = thresholds_in_words(tiny(), calibration, {"verify": {}, "wide": {"delta": 0.03}})
    assert "worst gap 3.5 BF16 ULPs, in 8 rows a pass" in words["stock"][0]
    assert "48 near-ties in 3072 tokens (1.56%)" in words["stock"][0]
    assert "4 near-ties (0.40%)" in words["stock"][3]
    policy = policy_for(tiny(), calibration)
    assert any(f"N = {policy.min_tokens} " in sentence for sentence in words["verify"])
    assert any("delta = 1.56%" in sentence for sentence in words["verify"])
    assert any("delta = 3.00%" in sentence for sentence in words["wide"])


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (shape(worst_change=8.5), "move by 8.5"),
        (shape(worst_change=math.inf), "move by inf"),
        (shape(worst_gap=9.0), "9 bf16_ulp from its own choice in 8 rows"),
        (shape(mismatches=1), "8 rows a pass stock makes 1 choices"),
    ],
)
def test_a_shape_that_rounding_does_not_explain_calibrates_nothing(
    row: ShapeRow, said: str
) -> None:
    with pytest.raises(CalibrationError, match=said):
        calibrate(tiny(), batch(48), batch(48), shapes=[row])


def test_too_small_a_calibration_says_so_in_its_words() -> None:
    words = thresholds_in_words(tiny(), calibrated(batch(2)), {"verify": {}})
    assert "calibrate with about" in words["verify"][0]


def test_shapes_survive_json(tmp_path: Path) -> None:
    calibration = calibrate(tiny(), batch(48), batch(48), shapes=[shape()])
    save_calibration(calibration, tmp_path / "c.json")
    assert load_calibration(tmp_path / "c.json") == calibration
