"""Verdicts by table, and the composition of ratios against a Monte Carlo."""

from __future__ import annotations

import math

import numpy as np
import pytest

from farm.campaign.candidate import compose
from farm.campaign.decide import decide, failed, faster
from farm.campaign.jobs import MeasureOutcome, VerifyOutcome
from farm.results import RatioInterval
from farm.verdicts import Verdict

OK = MeasureOutcome("ok", recording={})
LOSER = MeasureOutcome("ok", recording={}, clear_loser=True)
LOSSLESS = VerifyOutcome("lossless", "none wrong", evidence={"tokens": 5})
FLOOR = 1.02


def interval(low: float, high: float, baseline: str = "native-abc") -> RatioInterval:
    return RatioInterval(math.sqrt(low * high), low, high, baseline, 12, "quiet_time")


@pytest.mark.parametrize(
    ("low", "high", "floor", "verdict"),
    [
        (1.03, 1.10, 1.02, Verdict.ACCEPTED),
        (1.02, 1.10, 1.02, Verdict.INCONCLUSIVE),
        (1.0201, 1.03, 1.02, Verdict.ACCEPTED),
        (0.98, 1.10, 1.02, Verdict.INCONCLUSIVE),
        (0.98, 1.02, 1.02, Verdict.INCONCLUSIVE),
        (0.98, 1.019, 1.02, Verdict.NOT_FASTER),
        (0.80, 0.90, 1.02, Verdict.NOT_FASTER),
        (0.97, 0.99, 0.98, Verdict.NOT_FASTER),
        (0.995, 1.01, 1.0, Verdict.INCONCLUSIVE),
        (math.nan, math.nan, 1.02, Verdict.INCONCLUSIVE),
        (1.5, math.nan, 1.02, Verdict.INCONCLUSIVE),
        (math.inf, math.inf, 1.02, Verdict.INCONCLUSIVE),
        (1.5, math.inf, 1.02, Verdict.INCONCLUSIVE),
        (1.5, 1.6, math.nan, Verdict.INCONCLUSIVE),
    ],
)
def test_faster(low: float, high: float, floor: float, verdict: Verdict) -> None:
    decision = faster(interval(low, high), floor)
    assert decision.verdict is verdict
    assert "native-abc" in decision.reason
    assert decision.evidence["low"] == low or math.isnan(low)


@pytest.mark.parametrize(
    ("status", "blamed", "verdict"),
    [
        ("crashed", "candidate", Verdict.CRASHED),
        ("timeout", "candidate", Verdict.TIMEOUT),
        ("malformed", "candidate", Verdict.CRASHED),
        ("out_of_memory", "candidate", Verdict.INFEASIBLE),
        ("crashed", "stock", Verdict.INVALID_ENVIRONMENT),
        ("timeout", "stock", Verdict.INVALID_ENVIRONMENT),
        ("out_of_memory", "ar", Verdict.INVALID_ENVIRONMENT),
        ("crashed", None, Verdict.INVALID_ENVIRONMENT),
        ("invalid_environment", None, Verdict.INVALID_ENVIRONMENT),
        ("invalid_environment", "candidate", Verdict.INVALID_ENVIRONMENT),
        ("a new word", "candidate", Verdict.INVALID_ENVIRONMENT),
    ],
)
def test_failed(status: str, blamed: str | None, verdict: Verdict) -> None:
    outcome = MeasureOutcome(status, blamed, "the log's end")
    decision = failed(outcome, "candidate")
    assert decision is not None and decision.verdict is verdict
    assert decision.reason == "the log's end"
    # Whatever else is known, a measurement that failed decides.
    assert decide(outcome, interval(2, 3), LOSSLESS, FLOOR) == decision


FAST, SLOW, WIDE = interval(1.1, 1.2), interval(0.8, 0.9), interval(0.9, 1.2)


def forced(status: str) -> VerifyOutcome:
    return VerifyOutcome(status, f"it is {status}", evidence={"why": status})


@pytest.mark.parametrize(
    ("outcome", "ratio", "verified", "verdict"),
    [
        (OK, FAST, LOSSLESS, Verdict.ACCEPTED),
        (OK, FAST, forced("not_lossless"), Verdict.NOT_LOSSLESS),
        (OK, FAST, forced("cheating"), Verdict.CHEATING),
        (OK, FAST, forced("inconclusive"), Verdict.INCONCLUSIVE),
        (OK, FAST, forced("calibrated"), Verdict.INCONCLUSIVE),
        (OK, FAST, forced("a new word"), Verdict.INCONCLUSIVE),
        (OK, FAST, forced("invalid_environment"), Verdict.INVALID_ENVIRONMENT),
        (OK, FAST, None, Verdict.INVALID_ENVIRONMENT),
        (OK, SLOW, LOSSLESS, Verdict.NOT_FASTER),
        (OK, SLOW, forced("not_lossless"), Verdict.NOT_LOSSLESS),
        (OK, SLOW, forced("cheating"), Verdict.CHEATING),
        (OK, SLOW, forced("inconclusive"), Verdict.NOT_FASTER),
        (OK, WIDE, LOSSLESS, Verdict.INCONCLUSIVE),
        (OK, None, LOSSLESS, Verdict.INCONCLUSIVE),
        (OK, None, forced("not_lossless"), Verdict.NOT_LOSSLESS),
        (LOSER, SLOW, None, Verdict.NOT_FASTER),
        (LOSER, WIDE, None, Verdict.NOT_FASTER),
        (LOSER, FAST, None, Verdict.NOT_FASTER),
        (LOSER, FAST, LOSSLESS, Verdict.NOT_FASTER),
    ],
)
def test_decide(
    outcome: MeasureOutcome,
    ratio: RatioInterval | None,
    verified: VerifyOutcome | None,
    verdict: Verdict,
) -> None:
    decision = decide(outcome, ratio, verified, FLOOR)
    assert decision.verdict is verdict
    assert decision.reason


def test_an_accepted_candidate_carries_both_kinds_of_evidence() -> None:
    evidence = decide(OK, FAST, LOSSLESS, FLOOR).evidence
    assert evidence["floor"] == FLOOR and evidence["tokens"] == 5


def log_normal(ratio: float, half_width: float) -> RatioInterval:
    """A 95 % interval of a log-normal ratio."""
    half = math.log1p(half_width)
    return RatioInterval(
        ratio, ratio * math.exp(-half), ratio * math.exp(half), f"b{ratio}", 10, "m"
    )


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (log_normal(1.1, 0.02), log_normal(2.0, 0.05)),
        (log_normal(1.5, 0.2), log_normal(0.9, 0.2)),
        (log_normal(3.0, 0.01), log_normal(1.0, 0.0)),
    ],
)
def test_composition_is_the_product_of_log_normals(
    first: RatioInterval, second: RatioInterval
) -> None:
    rng = np.random.default_rng(7)
    logs = sum(
        rng.normal(math.log(i.ratio), math.log(i.high / i.ratio) / 1.959964, 400_000)
        for i in (first, second)
    )
    low, middle, high = np.exp(np.quantile(logs, [0.025, 0.5, 0.975]))
    found = compose(first, second)
    assert found.ratio == pytest.approx(middle, rel=2e-3)
    assert found.low == pytest.approx(low, rel=4e-3)
    assert found.high == pytest.approx(high, rel=4e-3)
    assert found.baseline == second.baseline
    assert "composed" in found.method


def test_composition_with_nothing_is_the_first() -> None:
    assert compose(FAST, None) is FAST
    few = compose(FAST, RatioInterval(1.0, 0.9, 1.1, "ar", 3, "m"))
    assert few.n == 3
