"""Dropping early: the bound against scipy, and what it takes to be dropped."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from farm.statistics.early_drop import FEWEST, hopeless, upper_bound


def test_the_bound_is_the_paired_t_interval() -> None:
    values = np.random.default_rng(0).normal(0.02, 0.04, 9)
    test = stats.ttest_1samp(values, 0.0, alternative="less")
    wanted = test.confidence_interval(0.95).high
    assert upper_bound(values) == pytest.approx(wanted)
    assert upper_bound(values[:1]) == math.inf
    assert upper_bound(values[:0]) == math.inf


def test_a_candidate_is_dropped_below_the_bar_only_and_not_before_four_prompts() -> None:
    slow = np.asarray([-0.10, -0.11, -0.09, -0.10, -0.12])
    assert hopeless(slow[:FEWEST], 0.0)
    assert not hopeless(slow[: FEWEST - 1], 0.0)
    assert not hopeless(slow, -0.2)
    assert not hopeless(np.asarray([-0.3, 0.3, -0.3, 0.3]), 0.05)
    assert not hopeless(np.asarray([0.1, 0.12, 0.11, 0.1]), 0.05)
