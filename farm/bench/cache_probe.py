"""Are an arm's caches empty after /flush_cache? Shown by the clock, after the timed part.

Each pair asks every arm a prompt that was timed before and one that nobody has asked, of the same
length and kind, each right after a flush; the client hangs up after a few tokens. An arm that has
kept nothing takes as long for both. Compared are ratios of ratios (the candidate's gain on the
known prompt over stock's in the same pair), so that what the machine did meanwhile cancels, and
only a large factor in every pair counts.
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from engines.answers import Answer, GenerationRequest
from farm.bench.plan import MeasurementPlan
from farm.bench.protocol import PausableEngine
from farm.bench.session import Session
from farm.bench.variants import variant

PAIRS = 4
TOKENS = 8
LARGE_FIRST = 2.0
LARGE_REST = 3.0
"""Accept lengths differ between any two prompts, so tokens after the first must gain more."""
# Below this a factor is the client's own delay.
LEAST_SAVED_S = 0.005


@dataclass(frozen=True)
class ProbedPrompt:
    """One prompt, known or not, answered by one arm in one pair. `first_s`: sending to the first
    event; `rest_s`: from there to the last of `TOKENS` tokens, a token."""

    arm: str
    pair: int
    known: bool
    first_s: float
    rest_s: float


@dataclass(frozen=True)
class CacheEffect:
    """How much less a known prompt takes than an unknown one, the candidate's factor over stock's,
    one a pair: to the first token, and a token after it. `kept` names what gained in every pair,
    empty when nothing did; None where too few pairs could be asked."""

    first_factors: tuple[float, ...]
    rest_factors: tuple[float, ...]
    kept: str | None

    def to_json(self) -> dict[str, Any]:
        def numbers(factors: tuple[float, ...]) -> list[float | None]:
            return [round(f, 3) if math.isfinite(f) else None for f in factors]

        return {
            "first_factors": numbers(self.first_factors),
            "rest_factors": numbers(self.rest_factors),
            "kept": self.kept,
        }


def probe_caches(
    engines: Mapping[str, PausableEngine],
    requests: Sequence[GenerationRequest],
    asked: Sequence[int],
    plan: MeasurementPlan,
) -> tuple[ProbedPrompt, ...]:
    """Ask up to `PAIRS` pairs, the longest of the `asked` prompts (places in `requests`) first.

    The caller holds the timing lock; all engines are running again when this returns or raises.

    Raises:
        EngineError: what an engine's client raised, with its arm.
    """
    rng = random.Random(f"probe:{plan.seed}")
    session = Session.begin(engines, requests, plan)
    found: list[ProbedPrompt] = []
    with session.others_paused():
        for index in sorted(asked, key=lambda i: -len(requests[i].prompt_ids)):
            pair = len({probe.pair for probe in found})
            if pair == PAIRS:
                break
            unknown = variant(requests, index, rng)
            if unknown is None:
                continue
            both = [(True, requests[index]), (False, unknown)]
            for label in session.order(0, pair):
                for known, request in both if pair % 2 == 0 else reversed(both):
                    with session.running(label):
                        session.clients[label].flush_cache()
                        answer = session.clients[label].stream(request, cut=TOKENS)
                    found.append(_probed(label, pair, known, answer))
    return tuple(found)


def _probed(label: str, pair: int, known: bool, answer: Answer) -> ProbedPrompt:
    (first, had), (last, have) = answer.arrivals[0], answer.arrivals[-1]
    rest = (last - first) / (have - had) if have > had else math.nan
    return ProbedPrompt(label, pair, known, first - answer.sent_s, rest)


def cache_effect(
    probes: Sequence[ProbedPrompt], numerator: str = "candidate", denominator: str = "stock"
) -> CacheEffect:
    """What the probes show of `numerator`, with `denominator` as the control."""
    places = {(p.arm, p.pair, p.known): p for p in probes}
    pairs = sorted({p.pair for p in probes})
    first, rest, saved_first, saved_rest = [], [], [], []
    for pair in pairs:
        four = [
            places.get((arm, pair, k)) for arm in (numerator, denominator) for k in (True, False)
        ]
        known, unknown, control_known, control_unknown = four
        if not (known and unknown and control_known and control_unknown):
            continue
        first.append(
            _factor(unknown.first_s, known.first_s)
            / _factor(control_unknown.first_s, control_known.first_s)
        )
        rest.append(
            _factor(unknown.rest_s, known.rest_s)
            / _factor(control_unknown.rest_s, control_known.rest_s)
        )
        saved_first.append(unknown.first_s - known.first_s)
        saved_rest.append((unknown.rest_s - known.rest_s) * (TOKENS - 1))
    kept = None
    if len(first) >= PAIRS:
        gains = [
            name
            for name, factors, large, saved in (
                ("time to first token", first, LARGE_FIRST, saved_first),
                ("tokens after it", rest, LARGE_REST, saved_rest),
            )
            if all(f >= large for f in factors) and statistics.median(saved) >= LEAST_SAVED_S
        ]
        kept = ", ".join(gains)
    return CacheEffect(tuple(first), tuple(rest), kept)


def _factor(unknown_s: float, known_s: float) -> float:
    """NaN (an answer of one token) compares as no gain."""
    return unknown_s / max(known_s, 1e-6)


def probes_from_json(data: Sequence[Mapping[str, Any]]) -> tuple[ProbedPrompt, ...]:
    return tuple(ProbedPrompt(**item) for item in data)
