"""Wilcoxon's signed-rank test, exact for few pairs (Wilcoxon 1945, Biometrics Bulletin 1, 80-83).

The alternative that farm.statistics.early_drop is compared with.
"""

from __future__ import annotations

import numpy as np

from farm.statistics.statistic import Floats


def signed_rank_p(values: Floats, centre: float) -> float:
    """P(rank sum of positive differences as small as seen or smaller) if `values` lie symmetrically
    about `centre`: small where they lie below it. Zero differences are left out, equal ones share
    their mean rank; the distribution is conditional on the ranks and exact."""
    differences = values[values != centre] - centre
    if not len(differences):
        return 1.0
    size = np.abs(differences)
    # Twice the mean rank is whole.
    doubled = [int((size < s).sum() + (size <= s).sum() + 1) for s in size]
    seen = sum(rank for rank, d in zip(doubled, differences, strict=True) if d > 0)
    ways = np.zeros(sum(doubled) + 1)
    ways[0] = 1.0
    for rank in doubled:
        ways[rank:] = ways[rank:] + ways[: len(ways) - rank]
    return float(ways[: seen + 1].sum() / ways.sum())
