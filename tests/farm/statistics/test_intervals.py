"""t quantiles, launch spread and intervals against tables and against simulated truth."""

from __future__ import annotations

import math

import numpy as np
import pytest

from farm.statistics.jackknife import jackknife_cells
from farm.statistics.launch_spread import (
    LEAST_SHARE,
    UNKNOWN,
    LaunchSpread,
    launch_spread,
    pooled,
)
from farm.statistics.layout import layout_of
from farm.statistics.ratio_interval import ENOUGH_LAUNCHES, log_interval
from farm.statistics.resampling import launch_draws, prompt_draws
from farm.statistics.simulate_campaigns import flat
from farm.statistics.statistic import CellMeans, Floats
from farm.statistics.student_t import t_cdf, t_quantile


def _cells(values: Floats) -> CellMeans:
    return CellMeans(np.stack([values, values * 0.25, values * 0.75], axis=-1))


def _own_prompts(values: Floats) -> Floats:
    """Launches that asked prompts of their own."""
    return flat(np.stack([values] * 3, axis=-1))[:, :, 0]


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


def test_layouts_tell_shared_prompts_from_fresh_ones() -> None:
    shared = np.ones((3, 12), dtype=bool)
    fresh = ~np.isnan(_own_prompts(np.zeros((3, 14))))
    few_met_again = np.hstack([fresh, np.ones((3, 2), dtype=bool)])
    assert (layout_of(shared).crossed, layout_of(shared).prompt_df) == (True, 11)
    assert (layout_of(fresh).crossed, layout_of(fresh).prompt_df) == (False, 39)
    assert not layout_of(few_met_again).crossed
    assert layout_of(shared[:1]).crossed


@pytest.mark.parametrize("fresh", [False, True])
def test_launch_spread_finds_what_was_put_in_and_no_more(fresh: bool) -> None:
    rng = np.random.default_rng(0)

    def mean_variance(launch_sd: float) -> float:
        found = []
        for _ in range(400):
            # Large prompt effects: shared by all launches they cancel, fresh ones are explained.
            prompts = rng.normal(0, 0.3, (4 if fresh else 1, 12))
            cells = prompts + rng.normal(0, launch_sd, (4, 1)) + rng.normal(0, 0.05, (4, 12))
            found.append(launch_spread(_own_prompts(cells) if fresh else cells).variance)
        return float(np.mean(found))

    unit = 0.2 if fresh else 0.05
    assert mean_variance(unit) == pytest.approx(unit**2, rel=0.2)
    assert abs(mean_variance(0.0)) < 0.1 * unit**2
    assert launch_spread(np.zeros((1, 12))) == UNKNOWN


def test_a_spread_is_never_nothing_when_launches_differed() -> None:
    explained = LaunchSpread(variance=-0.01, observed=0.04, df=2)
    assert explained.sd == pytest.approx(math.sqrt(LEAST_SHARE * 0.04))
    assert LaunchSpread(0.03, 0.04, 2).sd == pytest.approx(math.sqrt(0.03))
    assert UNKNOWN.sd == 0.0


def test_pooling_weighs_by_degrees_of_freedom() -> None:
    both = pooled([LaunchSpread(0.01, 0.02, 2), UNKNOWN, LaunchSpread(-0.02, 0.06, 6)])
    assert both == LaunchSpread(
        pytest.approx((2 * 0.01 - 6 * 0.02) / 8), pytest.approx((2 * 0.02 + 6 * 0.06) / 8), 8
    )
    assert pooled([UNKNOWN]) == UNKNOWN


@pytest.mark.parametrize("crossed", [True, False])
def test_prompts_are_drawn_alike_where_launches_share_them(crossed: bool) -> None:
    values = np.zeros((3, 7))
    present = ~np.isnan(values if crossed else _own_prompts(values))
    weights = prompt_draws(present, 500, seed=3)
    assert (weights.sum(axis=2) == 7).all()
    assert not (weights * ~present).any()
    same = (weights[:, 0] == weights[:, 1]).all()
    assert same == crossed
    # Multinomial: each count has mean 1 and variance 1 - 1/7.
    counts = weights[:, present]
    assert counts.mean() == pytest.approx(1.0)
    assert counts.var() == pytest.approx(6 / 7, rel=0.1)
    assert (prompt_draws(present, 500, seed=3) == weights).all()
    assert (prompt_draws(present, 500, seed=4) != weights).any()


def test_launch_draws_have_the_spread_they_are_given() -> None:
    rng = np.random.default_rng(4)
    drawn = launch_draws(np.asarray([0.1, 0.3, -0.2, 0.0, 0.05, 0.4]), 0.02, 20_000, rng)
    assert drawn.std() == pytest.approx(0.02 / math.sqrt(6), rel=0.03)
    assert drawn.mean() == pytest.approx(0.0, abs=3e-4)
    assert not launch_draws(np.ones(6), 0.02, 10, rng).any()


@pytest.mark.parametrize("prompts", [4, 8, 20])
def test_coverage_over_prompts_is_near_95_percent(prompts: int) -> None:
    rng = np.random.default_rng(prompts)
    covered = 0
    for i in range(300):
        cells = _cells(0.2 + rng.normal(0, 0.1, (1, prompts)))
        found = log_interval(cells, resamples=200, seed=i)
        covered += found.low <= 0.2 <= found.high
    assert covered >= 0.92 * 300


@pytest.mark.parametrize("fresh", [False, True])
@pytest.mark.parametrize("launches", [3, 6])
def test_launch_effects_enter_the_interval(launches: int, fresh: bool) -> None:
    rng = np.random.default_rng(5)
    covered = 0
    for i in range(300):
        values = rng.normal(0, 0.05, (launches, 1)) + rng.normal(0, 0.02, (launches, 12))
        found = log_interval(_cells(_own_prompts(values) if fresh else values), seed=i)
        covered += found.low <= 0.0 <= found.high
        assert ("over launches and prompts" in found.kind) == (launches >= ENOUGH_LAUNCHES)
    assert covered >= 0.92 * 300


def test_a_known_launch_spread_widens_a_single_launch() -> None:
    rng = np.random.default_rng(6)
    cells = _cells(rng.normal(0, 0.02, (1, 12)))
    plain = log_interval(cells)
    floored = log_interval(cells, launch=LaunchSpread.known(0.03, 2))
    assert floored.high - floored.components.ratio == pytest.approx(
        math.hypot(plain.high - plain.components.ratio, t_quantile(0.975, 2) * 0.03)
    )
    assert "launches" in floored.kind
    # Accept lengths are counted: a spread of clocks is not theirs.
    assert floored.tau == plain.tau
    assert floored.step.high - floored.step.point > plain.step.high - plain.step.point


def test_the_factors_have_their_own_intervals_from_the_same_draws() -> None:
    rng = np.random.default_rng(7)
    tau, step = rng.normal(0.3, 0.2, (1, 14)), rng.normal(0.0, 0.02, (1, 14))
    found = log_interval(CellMeans(np.stack([tau + step, tau, step], axis=-1)))
    assert found.tau.low < found.tau.point < found.tau.high
    assert found.ratio.point == pytest.approx(found.tau.point + found.step.point)
    # One factor varies ten times as much: the ratio's interval is about as wide as its.
    width = found.tau.high - found.tau.low
    assert found.high - found.low == pytest.approx(width, rel=0.05)
    assert found.step.high - found.step.low < 0.2 * width
    counted_alike = np.stack([step, np.zeros_like(step), step], axis=-1)
    alone = log_interval(CellMeans(counted_alike))
    assert (alone.tau.low, alone.tau.high) == (0.0, 0.0)


def test_a_stricter_level_is_wider_and_far_out_is_student_t() -> None:
    rng = np.random.default_rng(8)
    values = rng.normal(0, 0.03, (1, 14))
    widths = [
        found.high - found.low
        for found in (
            log_interval(_cells(values), confidence=level) for level in (0.95, 0.99, 0.998, 0.99999)
        )
    ]
    assert widths == sorted(widths)
    half = t_quantile(1 - 0.000005, 13) * values.std(ddof=1) / math.sqrt(14)
    assert widths[-1] == pytest.approx(2 * half, rel=0.05)


def test_missing_cells_and_too_few_prompts() -> None:
    values = np.array([[0.1, np.nan, 0.3], [np.nan, 0.2, 0.4]])
    found = log_interval(_cells(values), resamples=50)
    # Launches count equally: (0.2 + 0.3) / 2.
    assert found.components.ratio == pytest.approx(0.25)
    assert (found.prompts, found.launches) == (3, 2)
    with pytest.raises(ValueError, match="1 prompts"):
        log_interval(_cells(np.array([[0.1]])))


def test_evaluating_many_weights_is_evaluating_each() -> None:
    rng = np.random.default_rng(9)
    values = rng.normal(size=(3, 5, 3))
    values[0, 1] = np.nan
    means = CellMeans(values)
    weights = rng.integers(0, 3, (20, 3, 5)).astype(float)
    for w, found in zip(weights, means.evaluate_each(weights), strict=True):
        by_hand = [
            np.average(values[row][keep], axis=0, weights=w[row][keep])
            for row in range(3)
            if (w[row] * (keep := ~np.isnan(values[row, :, 0]))).any()
        ]
        np.testing.assert_allclose(found, np.mean(by_hand, axis=0), rtol=1e-12)
        # Not to the last bit: one draw and many go through other matrix products.
        np.testing.assert_allclose(means.evaluate(w), np.mean(by_hand, axis=0), rtol=1e-12)


def test_pseudo_values_of_a_mean_are_its_cells() -> None:
    values = np.random.default_rng(10).normal(size=(2, 4, 3))
    values[1, 2] = np.nan
    np.testing.assert_allclose(jackknife_cells(CellMeans(values)), values)
