"""The interval not to use: every timed token an independent unit.

Kept as the negative control of farm.statistics.proof. Tokens of a step share its time, steps of a
launch its machine, its pages and its minute; resampling tokens makes intervals too narrow.
"""

from __future__ import annotations

import math

import numpy as np

from farm.statistics.statistic import Floats

_NORMAL_975 = 1.959964


def token_interval(
    numerator: Floats, denominator: Floats, accept_length: float
) -> tuple[float, float]:
    """95 % bounds of the log ratio of tokens a second at equal accept lengths.

    The closed form the bootstrap over single tokens comes to with thousands of them (delta method
    for the log of a mean): its standard error is the root of cv^2 / n of both arms.

    Args:
        numerator, denominator: seconds of every step, any shape; each of its `accept_length`
            tokens counts as one observation of it.
    """
    point = math.log(float(np.mean(denominator)) / float(np.mean(numerator)))
    error = math.sqrt(
        sum(
            float(np.var(x)) / float(np.mean(x)) ** 2 / (x.size * accept_length)
            for x in (numerator, denominator)
        )
    )
    return point - _NORMAL_975 * error, point + _NORMAL_975 * error
