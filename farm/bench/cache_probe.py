"""Are an arm's caches empty after /flush_cache? Shown by the clock, after the timed part.

Each pair asks both arms a prompt that was timed before and one that nobody has asked, of the same
length and kind, each right after a flush, the known one once more just before; the client hangs up
after a few tokens. An arm that has kept nothing takes as long for both. Compared are ratios of
ratios (the candidate's gain on the known prompt over stock's in the same pair), so that what the
machine did meanwhile cancels, and only a large gain in every one of `PAIRS` pairs counts. The first
pair without one ends the probe: an honest engine is hardly ever asked a second.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from engines.answers import Answer, GenerationRequest
from farm.bench.plan import MeasurementPlan
from farm.bench.protocol import PausableEngine
from farm.bench.session import Session
from farm.bench.variants import variant

PAIRS = 6
TOKENS = 8
LARGE = 2.0
# A client on a busy machine reads an event this late: added to every time, so that a factor between
# two times below it is next to nothing.
CLIENT_S = 0.01
_BOTH = (True, False)


@dataclass(frozen=True)
class ProbedPrompt:
    """One prompt, known or not, answered by one arm in one pair: seconds from sending to the first
    event, and to the `TOKENS`-th token."""

    arm: str
    pair: int
    known: bool
    first_s: float
    total_s: float


@dataclass(frozen=True)
class CacheEffect:
    """How much less a known prompt takes than an unknown one, the candidate's factor over stock's,
    one a pair: to the first token, and to the last that was waited for. `kept` names what gained in
    all `PAIRS` pairs, empty when nothing did; None where too few pairs could be asked."""

    first_factors: tuple[float, ...]
    total_factors: tuple[float, ...]
    kept: str | None

    def to_json(self) -> dict[str, Any]:
        return {
            "first_factors": [round(f, 3) for f in self.first_factors],
            "total_factors": [round(f, 3) for f in self.total_factors],
            "kept": self.kept,
        }


def probe_caches(
    engines: Mapping[str, PausableEngine],
    requests: Sequence[GenerationRequest],
    asked: Sequence[int],
    plan: MeasurementPlan,
    numerator: str = "candidate",
    denominator: str = "stock",
) -> tuple[ProbedPrompt, ...]:
    """Ask up to `PAIRS` pairs, the longest of the `asked` prompts (places in `requests`) first.

    The caller holds the timing lock; all engines are running again when this returns or raises.

    Raises:
        EngineError: what an engine's client raised, with its arm.
    """
    rng = random.Random(f"probe:{plan.seed}")
    both = {label: engines[label] for label in (numerator, denominator)}
    session = Session.begin(both, requests, plan)
    found: list[ProbedPrompt] = []
    longest = sorted(asked, key=lambda i: -len(requests[i].prompt_ids))
    pairs = [(i, unknown) for i in longest if (unknown := variant(requests, i, rng)) is not None]
    with session.others_paused():
        # A prompt may stand in several pairs, each time against another unknown one.
        for pair in range(PAIRS if pairs else 0):
            index, unknown = pairs[pair % len(pairs)]
            if pair >= len(pairs):
                unknown = variant(requests, index, rng) or unknown
            found += _one_pair(session, pair, requests[index], unknown)
            if cache_effect(found, numerator, denominator).kept is not None:
                break
    return tuple(found)


def _one_pair(
    session: Session, pair: int, known: GenerationRequest, unknown: GenerationRequest
) -> list[ProbedPrompt]:
    found = []
    prompts = [(True, known), (False, unknown)]
    for label in session.order(0, pair):
        for is_known, request in prompts if pair % 2 == 0 else reversed(prompts):
            with session.running(label):
                # Also an engine that keeps its last request only must have met the known one.
                for _ in range(2 if is_known else 1):
                    session.clients[label].flush_cache()
                    answer = session.clients[label].stream(request, cut=TOKENS)
            found.append(_probed(label, pair, is_known, answer))
    return found


def _probed(label: str, pair: int, known: bool, answer: Answer) -> ProbedPrompt:
    first, last = answer.arrivals[0][0], answer.arrivals[-1][0]
    return ProbedPrompt(label, pair, known, first - answer.sent_s, last - answer.sent_s)


def cache_effect(
    probes: Sequence[ProbedPrompt], numerator: str = "candidate", denominator: str = "stock"
) -> CacheEffect:
    """What the probes show of `numerator`, with `denominator` as the control."""
    places = {(p.arm, p.pair, p.known): p for p in probes}
    first, total = _Gain("time to first token"), _Gain(f"time to token {TOKENS}")
    for pair in sorted({p.pair for p in probes}):
        four = [places.get((arm, pair, k)) for arm in (numerator, denominator) for k in _BOTH]
        known, unknown, control_known, control_unknown = four
        if known and unknown and control_known and control_unknown:
            controls = control_unknown, control_known
            first.add(unknown.first_s, known.first_s, *(c.first_s for c in controls))
            total.add(unknown.total_s, known.total_s, *(c.total_s for c in controls))
    large = [gain for gain in (first, total) if gain.in_every_pair]
    kept: str | None = ", ".join(gain.name for gain in large if gain.saves)
    if len(first.factors) < PAIRS and (large or not first.factors):
        kept = None
    return CacheEffect(tuple(first.factors), tuple(total.factors), kept)


@dataclass
class _Gain:
    """One kind of time: the candidate's factor over stock's a pair, and the seconds it saves."""

    name: str
    factors: list[float] = field(default_factory=list)
    saved_s: list[float] = field(default_factory=list)

    def add(self, unknown: float, known: float, stock_unknown: float, stock_known: float) -> None:
        self.factors.append(_factor(unknown, known) / _factor(stock_unknown, stock_known))
        self.saved_s.append(unknown - known)

    @property
    def in_every_pair(self) -> bool:
        return bool(self.factors) and all(factor >= LARGE for factor in self.factors)

    @property
    def saves(self) -> bool:
        return statistics.median(self.saved_s) >= CLIENT_S


def _factor(unknown_s: float, known_s: float) -> float:
    return (unknown_s + CLIENT_S) / (known_s + CLIENT_S)


def probes_from_json(data: Sequence[Mapping[str, Any]]) -> tuple[ProbedPrompt, ...]:
    return tuple(ProbedPrompt(**item) for item in data)
