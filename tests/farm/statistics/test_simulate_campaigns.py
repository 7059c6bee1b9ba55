"""The simulated cells show the effects they were made with, of the sizes that were measured."""

from __future__ import annotations

import numpy as np
import pytest

from farm.statistics.simulate_campaigns import (
    BUSY_MACHINE,
    CELL_SD,
    NO_CHANGE,
    QUIET_MACHINE,
    Effect,
    cells,
    flat,
    kernel,
    mechanism,
)


def test_a_quiet_cell_is_as_noisy_as_the_measured_one() -> None:
    made = cells(np.random.default_rng(0), QUIET_MACHINE, NO_CHANGE, 400, 1).values[..., 0]
    within = np.sqrt(made.var(axis=2, ddof=1).mean())
    assert within == pytest.approx(CELL_SD, rel=0.15)
    busy = cells(np.random.default_rng(0), BUSY_MACHINE, NO_CHANGE, 400, 1).values[..., 0]
    assert np.sqrt(busy.var(axis=2, ddof=1).mean()) > within


@pytest.mark.parametrize("noise", [QUIET_MACHINE, BUSY_MACHINE])
def test_launches_differ_by_what_was_measured(noise) -> None:  # type: ignore[no-untyped-def]
    made = cells(np.random.default_rng(1), noise, NO_CHANGE, 1500, 1).values[:, 0, :, 0]
    within = made.var(axis=1, ddof=1).mean() / made.shape[1]
    between = made.mean(axis=1).var(ddof=1) - within
    assert between == pytest.approx(noise.launch_sd**2, abs=0.15 * (noise.launch_sd**2 + within))
    assert made.mean() == pytest.approx(0.0, abs=4 * np.sqrt((between + within) / 1500))


def test_effects_come_out_where_they_were_put_in() -> None:
    rng = np.random.default_rng(2)
    mixed = [mechanism(0.3), kernel(-0.2)] * 300
    made = cells(rng, QUIET_MACHINE, mixed, 600, 2).values
    draft, step = made[::2], made[1::2]
    assert draft.mean(axis=(0, 1, 2)) == pytest.approx([0.3, 0.3, 0.0], abs=0.01)
    assert draft[..., 1].std() == pytest.approx(mechanism(0.3).tau_sd, rel=0.05)
    assert step.mean(axis=(0, 1, 2)) == pytest.approx([-0.2, 0.0, -0.2], abs=0.01)
    assert not step[..., 1].any()
    np.testing.assert_allclose(made[..., 0], made[..., 1] + made[..., 2])


def test_shared_prompts_have_their_effect_in_every_launch() -> None:
    effect = Effect(tau=0.1, tau_sd=0.2)
    rng = np.random.default_rng(3)
    shared = cells(rng, QUIET_MACHINE, effect, 5, 3, same_prompts=True).values[..., 1]
    fresh = cells(rng, QUIET_MACHINE, effect, 5, 3).values[..., 1]
    assert (shared[:, 0] == shared[:, 1]).all()
    assert (fresh[:, 0] != fresh[:, 1]).all()


def test_step_times_tell_the_same_as_the_cells() -> None:
    made = cells(np.random.default_rng(4), QUIET_MACHINE, kernel(0.4), 3, 2, keep_gaps=True)
    assert made.gaps is not None
    pooled = np.log(made.gaps[..., 1].mean() / made.gaps[..., 0].mean())
    assert pooled == pytest.approx(made.values[..., 0].mean(), abs=0.05)


def test_launches_with_prompts_of_their_own_have_columns_of_their_own() -> None:
    values = np.arange(2 * 3 * 3, dtype=float).reshape(2, 3, 3)
    table = flat(values)
    assert table.shape == (2, 6, 3)
    np.testing.assert_array_equal(table[1, 3:], values[1])
    assert np.isnan(table[0, 3:]).all() and np.isnan(table[1, :3]).all()
    assert flat(values, same_prompts=True) is values
