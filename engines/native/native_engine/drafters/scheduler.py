"""How much of each draft is verified, from confidences alone (DSpark, arXiv 2607.05147).

Every rule decides on draft j of a request by the confidences up to j, none by a later one: looking
ahead would change the distribution of what is committed (Algorithm 1's early stop)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import accumulate
from operator import mul

import numpy as np

from native_engine.drafters.options import DrafterOptions
from native_engine.errors import ConfigError

Confidences = Sequence[Sequence[float]]
Schedule = Callable[[Confidences], list[int]]
"""Draft lengths to verify, from each request's confidences (none: it verifies its anchor alone)."""


def threshold(least: float) -> Schedule:
    """Up to the first confidence below `least`."""

    def lengths(confidences: Confidences) -> list[int]:
        return [
            next((j for j, c in enumerate(request) if c < least), len(request))
            for request in confidences
        ]

    return lengths


class StepRate:
    """Verify steps per second by tokens in the batch, from a profile: step time is interpolated
    between its points and constant below the first; 0 beyond the last, where nothing is known."""

    def __init__(self, batch_tokens: Sequence[int], steps_per_second: Sequence[float]) -> None:
        self._tokens = list(batch_tokens)
        if not self._tokens or len(self._tokens) != len(steps_per_second):
            raise ConfigError("drafter batch_tokens and steps_per_second: one rate for each size")
        if self._tokens != sorted(set(self._tokens)) or min(steps_per_second) <= 0:
            raise ConfigError("drafter batch_tokens must rise, steps_per_second be above 0")
        self._seconds = [1.0 / rate for rate in steps_per_second]

    def __call__(self, tokens: int) -> float:
        return 1.0 / float(np.interp(tokens, self._tokens, self._seconds, right=math.inf))


def throughput(rate: Callable[[int], float]) -> Schedule:
    """Algorithm 1: drafts of all requests in the order of their survival probability
    `a_j = c_1 .. c_j`, admitted while the expected tokens a second `tau * rate(B)` rise, and none
    after the first that does not raise them. B counts rows (an anchor for each request), tau
    starts at one bonus token for each."""

    def lengths(confidences: Confidences) -> list[int]:
        admitted = [0] * len(confidences)
        tau, rows = float(len(confidences)), len(confidences)
        best = tau * rate(rows)
        ranked = sorted(
            (-survival, j, request)
            for request, steps in enumerate(confidences)
            for j, survival in enumerate(accumulate(steps, mul))
        )
        for negative, _, request in ranked:
            tau, rows = tau - negative, rows + 1
            if tau * rate(rows) <= best:
                break
            best = tau * rate(rows)
            admitted[request] += 1
        return admitted

    return lengths


def make_schedule(options: DrafterOptions) -> Schedule | None:
    """The rule the options name; None verifies every draft."""
    if options.schedule == "threshold":
        return threshold(options.threshold)
    if options.schedule == "throughput":
        return throughput(StepRate(options.batch_tokens, options.steps_per_second))
    return None
