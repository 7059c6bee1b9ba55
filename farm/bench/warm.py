"""Warm-up: rounds of real requests until three medians in a row agree, with a limit.

The rule is on the engine's behaviour, not on a count; on a noisy machine it may never hold, and
then the limit ends it and the result says so.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from engines.answers import GenerationRequest
from farm.bench.errors import MeasurementError
from farm.bench.protocol import PausableEngine
from farm.bench.recording import run_from_answer
from farm.bench.steps import decode_steps

AGREEING_ROUNDS = 3


@dataclass(frozen=True)
class WarmUp:
    """`medians_s`: the median decode step of each round, in seconds. `answer_s`: the last round's
    mean seconds an answer, prefill included (what plans are made with)."""

    rounds: int
    medians_s: tuple[float, ...]
    answer_s: float
    settled: bool
    note: str


def warm(
    engine: PausableEngine,
    requests: Sequence[GenerationRequest],
    *,
    max_rounds: int = 12,
    tolerance: float = 0.02,
    cut: int | None = None,
) -> WarmUp:
    """Send `requests` round after round until `AGREEING_ROUNDS` round medians lie within
    `tolerance` of each other, at most `max_rounds` rounds. Nothing here is kept as a measurement.

    With `cut` the client hangs up after that many tokens: rounds are short, and the requests are
    still those of a timed answer, term by term.

    Raises:
        MeasurementError: no requests were given.
    """
    if not requests:
        raise MeasurementError("warm-up has no requests", "Give at least one prompt.")
    client = engine.client()
    medians: list[float] = []
    answer_s = 0.0
    for _ in range(max_rounds):
        gaps: list[float] = []
        seconds = 0.0
        for index, request in enumerate(requests):
            client.flush_cache()
            answer = client.stream(request, cut=cut)
            run = run_from_answer(answer, arm=engine.arm, request=index, repeat=0)
            seconds += run.wall_s[-1]
            gaps += decode_steps(run).gap_s.tolist() or [run.ttft_s]
        medians.append(statistics.median(gaps))
        answer_s = seconds / len(requests)
        last = medians[-AGREEING_ROUNDS:]
        if len(last) == AGREEING_ROUNDS and max(last) <= min(last) * (1.0 + tolerance):
            return WarmUp(len(medians), tuple(medians), answer_s, True, "settled")
    spread = max(medians[-AGREEING_ROUNDS:]) / max(min(medians[-AGREEING_ROUNDS:]), 1e-12) - 1.0
    note = f"not settled after {max_rounds} rounds (last medians differ by {spread:.1%})"
    return WarmUp(len(medians), tuple(medians), answer_s, False, note)
