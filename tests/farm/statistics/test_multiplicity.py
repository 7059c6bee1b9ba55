"""The level of a confirmation."""

from __future__ import annotations

import numpy as np
import pytest

from farm.statistics.multiplicity import ALPHA, confirmation_confidence


def test_one_candidate_is_confirmed_at_95_percent_and_more_share_the_error() -> None:
    assert confirmation_confidence(1) == pytest.approx(0.95)
    assert confirmation_confidence(4) == pytest.approx(0.9875)
    with pytest.raises(ValueError, match="needs one"):
        confirmation_confidence(0)


@pytest.mark.parametrize("competing", [1, 3, 10])
def test_all_of_them_together_are_wrong_no_more_often_than_alpha(competing: int) -> None:
    """Even if every competitor without a change were confirmed, not only the best."""
    rng = np.random.default_rng(competing)
    tail = (1 - confirmation_confidence(competing)) / 2
    wrong = (rng.random((100_000, competing)) < tail).any(axis=1).mean()
    assert wrong <= ALPHA / 2 + 0.002
