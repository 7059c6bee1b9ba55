"""The power calculation, against scipy's exact quantiles and by simulation."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import beta, binom

from tests.verifier.test_calibration import batch
from verifier.policy import exact_policy
from verifier.power import power_in_words, power_of
from verifier.proportions import detection_tokens, wrong_rate_bound
from verifier.report import ForcingReport


@pytest.mark.parametrize(
    ("wrong", "tokens"), [(0, 1), (0, 50), (0, 2995), (1, 1000), (7, 300), (40, 41), (250, 3000)]
)
def test_the_bound_is_clopper_and_pearsons(wrong: int, tokens: int) -> None:
    exact = float(beta.ppf(0.95, wrong + 1, tokens - wrong))
    assert wrong_rate_bound(wrong, tokens) == pytest.approx(exact, rel=1e-9)


def test_nothing_checked_could_all_be_wrong() -> None:
    assert wrong_rate_bound(0, 0) == wrong_rate_bound(5, 5) == 1.0


def test_one_in_a_thousand_is_what_2995_clean_tokens_exclude() -> None:
    tokens = detection_tokens(1 / 1000)
    assert tokens == 2995
    assert wrong_rate_bound(0, tokens) <= 0.001 < wrong_rate_bound(0, tokens - 1)
    assert binom.cdf(0, tokens, 0.001) <= 0.05


def test_the_bound_covers_the_truth_in_95_of_100_samples() -> None:
    rng = np.random.default_rng(5)
    drawn = rng.binomial(800, 0.004, 2000)
    covered = np.mean([wrong_rate_bound(int(x), 800) >= 0.004 for x in drawn])
    assert covered >= 0.94


def test_words_say_what_the_sample_could_have_missed() -> None:
    report = batch(10, 100, gaps=())
    power = power_of(report, exact_policy())
    assert (power.tokens, power.wrong, power.near_tie_tokens) == (1000, 0, None)
    words = power_in_words(power)
    assert "2995 distinct tokens; this sample has 1000" in words[0]
    assert "0.299% (one token in 334)" in words[1]
    empty = power_in_words(power_of(ForcingReport((), "bf16_ulp"), exact_policy()))
    assert "every token" in empty[1]
