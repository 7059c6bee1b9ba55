"""t quantiles, launch spread and intervals against tables and against simulated truth."""

from __future__ import annotations

import math

import numpy as np
import pytest

from farm.statistics.launch_spread import UNKNOWN, LaunchSpread, launch_spread, pooled
from farm.statistics.ratio_interval import jackknife_cells, log_interval
from farm.statistics.statistic import CellMeans
from farm.statistics.student_t import t_cdf, t_quantile


def _cells(values: np.ndarray) -> CellMeans:
    return CellMeans(np.stack([values, values * 0.25, values * 0.75], axis=-1))


@pytest.mark.parametrize(
    ("probability", "df", "table"),
    [
        (0.975, 1, 12.706),
        (0.975, 2, 4.303),
        (0.975, 4, 2.776),
        (0.975, 11, 2.201),
        (0.995, 7, 3.499),
        (0.9, 30, 1.310),
    ],
)
def test_t_quantiles_match_the_printed_table(probability: float, df: int, table: float) -> None:
    assert t_quantile(probability, df) == pytest.approx(table, abs=6e-4)
    assert t_quantile(1 - probability, df) == pytest.approx(-table, abs=6e-4)
    assert t_cdf(t_quantile(probability, df), df) == pytest.approx(probability)


def test_launch_spread_finds_what_was_put_in_and_no_more() -> None:
    rng = np.random.default_rng(0)
    prompt_effects = rng.normal(0, 0.3, (1, 12))  # large, shared by all launches: must cancel

    def mean_variance(launch_sd: float) -> float:
        found = [
            launch_spread(
                prompt_effects + rng.normal(0, launch_sd, (4, 1)) + rng.normal(0, 0.05, (4, 12))
            ).sd
            ** 2
            for _ in range(300)
        ]
        return float(np.mean(found))

    assert mean_variance(0.05) == pytest.approx(0.05**2, rel=0.2)
    assert mean_variance(0.0) < 0.01**2
    assert launch_spread(prompt_effects) == UNKNOWN


def test_pooling_weighs_by_degrees_of_freedom() -> None:
    both = pooled([LaunchSpread(0.1, 2), UNKNOWN, LaunchSpread(0.2, 6)])
    assert both == LaunchSpread(math.sqrt((2 * 0.01 + 6 * 0.04) / 8), 8)
    assert pooled([UNKNOWN]) == UNKNOWN


@pytest.mark.parametrize("prompts", [4, 8, 20])
def test_coverage_over_prompts_is_near_95_percent(prompts: int) -> None:
    rng = np.random.default_rng(prompts)
    covered = 0
    for i in range(150):
        cells = _cells(0.2 + rng.normal(0, 0.1, (1, prompts)))
        found = log_interval(cells, resamples=200, seed=i)
        covered += found.low <= 0.2 <= found.high
    assert covered >= 0.88 * 150


def test_launch_effects_enter_the_interval() -> None:
    rng = np.random.default_rng(5)
    covered = 0
    for i in range(100):
        cells = _cells(rng.normal(0, 0.05, (3, 1)) + rng.normal(0, 0.02, (3, 12)))
        found = log_interval(cells, resamples=100, seed=i)
        covered += found.low <= 0.0 <= found.high
    assert covered >= 90


def test_a_known_launch_spread_widens_a_single_launch() -> None:
    rng = np.random.default_rng(6)
    cells = _cells(rng.normal(0, 0.02, (1, 12)))
    plain = log_interval(cells)
    floored = log_interval(cells, launch=LaunchSpread(0.03, 2))
    assert floored.high - floored.components.ratio == pytest.approx(
        math.hypot(plain.high - plain.components.ratio, t_quantile(0.975, 2) * 0.03)
    )
    assert "launches" in floored.kind


def test_missing_cells_and_too_few_prompts() -> None:
    values = np.array([[0.1, np.nan, 0.3], [np.nan, 0.2, 0.4]])
    found = log_interval(_cells(values), resamples=50)
    # Launches count equally: (0.2 + 0.3) / 2.
    assert found.components.ratio == pytest.approx(0.25)
    assert (found.prompts, found.launches) == (3, 2)
    np.testing.assert_allclose(jackknife_cells(_cells(values)), values)
    with pytest.raises(ValueError, match="1 prompts"):
        log_interval(_cells(np.array([[0.1]])))
