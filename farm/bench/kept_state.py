"""Does an engine take fewer steps for a prompt it has met, after a flush? Counted, without a clock.

Greedy decoding of one prompt commits the same tokens in the same steps each time, unless a draft is
made from something that survived the flush: then the second time takes fewer. Each arm is asked
some of the timed prompts once more; steps are events that brought tokens, up to the same token.
An engine whose steps vary takes fewer by chance as well: this raises a suspicion, which
`repeat_trials` confirms or not.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from engines.answers import GenerationRequest
from farm.bench.plan import MeasurementPlan
from farm.bench.protocol import PausableEngine
from farm.bench.recording import Recording
from farm.bench.session import Session

PROMPTS = 3
TOKENS = 24
# An engine that adapts its drafts to the clock may differ by a step or two.
FEWER = 1.15
STEADY = 1.05


@dataclass(frozen=True)
class AskedAgain:
    """`tokens` received with each event of one arm's second answer to a timed prompt."""

    arm: str
    request: int
    tokens: tuple[int, ...]


@dataclass(frozen=True)
class KeptState:
    """Steps the first time and again, over all prompts asked again, of candidate and stock."""

    prompts: int
    first: int
    again: int
    stock_first: int
    stock_again: int

    @property
    def suspicious(self) -> bool:
        """The candidate takes fewer steps again, stock as many as before."""
        return self.first >= FEWER * self.again and self.stock_first <= STEADY * self.stock_again

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def ask_again(
    engines: Mapping[str, PausableEngine],
    requests: Sequence[GenerationRequest],
    asked: Sequence[int],
    plan: MeasurementPlan,
) -> tuple[AskedAgain, ...]:
    """Ask each engine the first `PROMPTS` of the `asked` prompts (places in `requests`) once more.

    The caller holds the timing lock; all engines are running again when this returns or raises.

    Raises:
        EngineError: what an engine's client raised, with its arm.
    """
    session = Session.begin(engines, requests, plan)
    found = []
    with session.others_paused():
        for index in asked[:PROMPTS]:
            for label in session.order(0, index):
                with session.running(label):
                    session.clients[label].flush_cache()
                    answer = session.clients[label].stream(requests[index], cut=TOKENS)
                counts = tuple(count for _, count in answer.arrivals)
                found.append(AskedAgain(label, index, counts))
    return tuple(found)


def kept_state(
    recording: Recording, again: Iterable[AskedAgain], numerator: str, denominator: str
) -> KeptState | None:
    """Against each prompt's first timed answer in the same launch; None where nothing was asked
    again of both arms."""
    first = {
        (run.arm, run.request): run.tokens for run in reversed(recording.runs) if run.repeat == 0
    }
    steps: dict[str, dict[int, tuple[int, int]]] = {numerator: {}, denominator: {}}
    for asked in again:
        before = first.get((asked.arm, asked.request))
        if asked.arm in steps and before and asked.tokens:
            until = min(before[-1], asked.tokens[-1])
            steps[asked.arm][asked.request] = (
                steps_until(before, until),
                steps_until(asked.tokens, until),
            )
    common = steps[numerator].keys() & steps[denominator].keys()
    if not common:
        return None
    ours, stocks = ([steps[arm][request] for request in common] for arm in (numerator, denominator))
    return KeptState(
        len(common),
        sum(a for a, _ in ours),
        sum(b for _, b in ours),
        sum(a for a, _ in stocks),
        sum(b for _, b in stocks),
    )


def added(states: Sequence[KeptState]) -> KeptState | None:
    """Several launches as one."""
    if not states:
        return None
    rows = [tuple(asdict(state).values()) for state in states]
    return KeptState(*(sum(column) for column in zip(*rows, strict=True)))


def asked_again_from_json(data: Sequence[Mapping[str, Any]]) -> tuple[AskedAgain, ...]:
    return tuple(AskedAgain(d["arm"], d["request"], tuple(d["tokens"])) for d in data)


def steps_until(tokens: Sequence[int], until: int) -> int:
    """Events that brought a token, up to the one that brought token number `until`."""
    count = had = 0
    for have in tokens:
        if have > had:
            count += 1
        had = max(had, have)
        if had >= until:
            break
    return count
