"""Verdicts by simulation: honest engines pass, a raised near-tie rate does not."""

import json
from dataclasses import replace

import numpy as np
import pytest

from tests.verifier.settings_for_tests import tiny
from tests.verifier.test_calibration import batch, row
from verifier.calibration import calibrate
from verifier.errors import CalibrationError
from verifier.judgement import judge
from verifier.policy import exact_policy
from verifier.report import ForcingReport
from verifier.thresholds import policy_for

RATE = 0.011
TOKENS = 64
EXACT = ForcingReport(tuple(row(f"twin{i}", 64) for i in range(60)), "bf16_ulp")


def drawn(rng: np.random.Generator, answers: int, rate: float) -> ForcingReport:
    rows = tuple(
        row(f"r{i}", TOKENS, (1.0,) * int(n))
        for i, n in enumerate(rng.binomial(TOKENS, rate, answers))
    )
    return ForcingReport(rows, "bf16_ulp")


def outcomes(rate: float, campaigns: int, answers: int | None = None) -> dict[str, float]:
    """Shares of each status over campaigns that calibrate and judge afresh."""
    rng = np.random.default_rng(11)
    counts: dict[str, int] = {}
    for _ in range(campaigns):
        stock = drawn(rng, 64, RATE)
        try:
            calibration = calibrate(tiny(), stock, stock)
            policy = policy_for(tiny(), calibration)
        except CalibrationError:
            counts["uncalibrated"] = counts.get("uncalibrated", 0) + 1
            continue
        size = answers or -(-policy.min_tokens // TOKENS)
        status = judge(drawn(rng, size, rate), calibration, policy, EXACT).status
        counts[status] = counts.get(status, 0) + 1
    return {status: n / campaigns for status, n in counts.items()}


def test_honest_near_ties_at_the_planned_size_pass() -> None:
    shares = outcomes(RATE, 300)
    assert shares["lossless"] >= 0.95, shares
    assert shares.get("not_lossless", 0.0) <= 0.01, shares


@pytest.mark.parametrize(("factor", "most"), [(2, 0.08), (4, 0.0)])
def test_a_raised_rate_within_the_allowed_gap_does_not_pass(factor: int, most: float) -> None:
    # At 2x the true difference is delta itself, where a 5 % test passes 5 %.
    shares = outcomes(RATE * factor, 300)
    assert shares.get("lossless", 0.0) <= most, shares


def test_second_best_within_one_ulp_is_called_lossy() -> None:
    # 6 % of positions have their second best within one ULP; committing it there is the cheat.
    assert outcomes(RATE + 0.06, 200) == {"not_lossless": 1.0}


def calibrated_policy():  # type: ignore[no-untyped-def]
    stock = drawn(np.random.default_rng(2), 64, RATE)
    calibration = calibrate(tiny(), stock, stock)
    return calibration, policy_for(tiny(), calibration)


def test_one_mismatch_or_one_bad_end_decides() -> None:
    calibration, policy = calibrated_policy()
    good = drawn(np.random.default_rng(4), 64, RATE)
    wrong = row("bad", TOKENS, (5.0,), mismatches=1, near_ties=0, first_bad_position=9)
    end = row("short", 9, end_ok=False, end_reason="early stop", first_bad_position=9)
    nan = row("nan", 9, (float("inf"),), mismatches=1, not_finite=1, first_bad_position=0)
    assert judge(good, calibration, policy, EXACT).lossless
    for extra, word in ((wrong, "stock's choice"), (end, "early stop"), (nan, "finite")):
        report = ForcingReport((*good.rows, extra), "bf16_ulp")
        judgement = judge(report, calibration, policy, EXACT)
        assert judgement.status == "not_lossless" and word in judgement.reason
        assert extra.request_id in judgement.reason
        json.dumps([judgement.evidence, report.to_json()], allow_nan=False)
        # the same fault in the FP32 run of a good candidate
        exact = ForcingReport((*EXACT.rows, extra), "bf16_ulp")
        assert judge(good, calibration, policy, exact).status == "not_lossless"


def test_whatever_is_missing_is_inconclusive() -> None:
    calibration, policy = calibrated_policy()
    good = drawn(np.random.default_rng(4), 64, RATE)
    few = ForcingReport(good.rows[:3], "bf16_ulp")
    empty = ForcingReport((), "bf16_ulp")
    for judgement, word in (
        (judge(good, calibration, policy, None), "FP32-exact"),
        (judge(good, None, policy, EXACT), "calibration"),
        (judge(few, calibration, policy, EXACT), "needs"),
        (judge(empty, calibration, policy, EXACT), "needs"),
        (judge(empty, None, exact_policy(1)), "0 distinct"),
        (judge(batch(3, gaps=()), None, exact_policy()), "2995"),
    ):
        assert judgement.status == "inconclusive" and word in judgement.reason


def test_repeats_of_a_deterministic_engine_are_no_new_evidence() -> None:
    calibration, policy = calibrated_policy()
    few = drawn(np.random.default_rng(4), 4, RATE)
    repeats = tuple(replace(r, fresh_tokens=0, fresh_near_ties=0) for r in few.rows)
    many = ForcingReport(few.rows + repeats * 40, "bf16_ulp")
    assert many.tokens_checked > 9000
    assert judge(many, calibration, policy, EXACT).status == "inconclusive"


def test_too_small_a_sample_is_not_accepted_even_without_a_near_tie() -> None:
    calibration, policy = calibrated_policy()
    sample = batch(policy.min_tokens // TOKENS - 1, gaps=())
    judgement = judge(sample, calibration, policy, EXACT)
    evidence = judgement.evidence["near_tie_rate"]
    assert evidence["difference_high95"] < evidence["delta"]
    assert judgement.status == "inconclusive"


def test_what_the_twin_is_asked_as_well_counts_once_towards_detection() -> None:
    calibration, policy = calibrated_policy()
    good = drawn(np.random.default_rng(4), 64, RATE)
    hidden = ForcingReport((row("h0", 300), row("h1", 200)), "bf16_ulp")
    twin = ForcingReport((row("h1", 190), row("r3", 60), row("own", 70)), "bf16_ulp")

    def counted(exact: ForcingReport) -> int:
        evidence = judge(good, calibration, policy, exact, hidden).evidence
        return int(evidence["tokens_towards_detection"])

    assert counted(twin) == good.fresh_tokens + 500 + 70
    by_kind = judge(good, calibration, policy, twin, hidden).evidence["exact"]["by_family"]
    assert sum(sums["tokens"] for sums in by_kind.values()) == 320
