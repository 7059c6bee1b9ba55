"""Is "fewer steps the second time" memory, or chance? Prompts nobody has asked, each asked thrice.

An engine whose flush empties it answers a prompt the first time as it does the second and third:
with the same steps, or, if its steps vary by chance, with steps from the same distribution. Then
every answer of the three is as likely to be the one that came first, whatever that distribution is,
and how often so much is saved by chance can be counted exactly (a permutation test). An engine that
keeps what it has met takes the most steps the first time, prompt after prompt.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from engines.answers import GenerationRequest
from farm.bench.kept_state import FEWER, TOKENS, steps_until
from farm.bench.plan import MeasurementPlan
from farm.bench.protocol import PausableEngine
from farm.bench.session import Session
from farm.bench.variants import variant

PROMPTS = 10
TIMES = 3
CHANCE = 0.001
"""An engine without a memory is accused at most once in a thousand times that it is suspected."""
_TRIES = 4


@dataclass(frozen=True)
class RepeatTrial:
    """One new prompt: for each time it was asked, in order, the tokens received with each event."""

    request: str
    tokens: tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class RepeatEffect:
    """Steps the first time, and the mean of the later ones, over all prompts; `chance` is how
    often a first answer drawn at random among each prompt's saves as much or more."""

    prompts: int
    first: int
    again: float
    chance: float

    @property
    def kept(self) -> bool:
        return self.first >= FEWER * self.again and self.chance <= CHANCE

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def ask_repeatedly(
    engines: Mapping[str, PausableEngine],
    subject: str,
    requests: Sequence[GenerationRequest],
    plan: MeasurementPlan,
) -> tuple[RepeatTrial, ...]:
    """Ask `subject` up to `PROMPTS` variants of `requests`, `TIMES` times each, always flushed.

    The caller holds the timing lock; all engines are running again when this returns or raises.

    Raises:
        EngineError: what the engine's client raised, with its arm.
    """
    session = Session.begin(engines, requests, plan)
    found = []
    with session.others_paused(), session.running(subject):
        client = session.clients[subject]
        for request in _new_prompts(requests, plan.seed):
            times = []
            for _ in range(TIMES):
                client.flush_cache()
                answer = client.stream(request, cut=TOKENS)
                times.append(tuple(count for _, count in answer.arrivals))
            found.append(RepeatTrial(request.id, tuple(times)))
    return tuple(found)


def _new_prompts(requests: Sequence[GenerationRequest], seed: int) -> Iterator[GenerationRequest]:
    """Up to `PROMPTS` different variants, one of each request before a second of any."""
    rng = random.Random(f"repeat:{seed}")
    met: set[tuple[int, ...]] = set()
    for turn in range(_TRIES * PROMPTS):
        found = variant(requests, turn % len(requests), rng) if requests else None
        if found is not None and found.prompt_ids not in met:
            met.add(found.prompt_ids)
            yield found
        if len(met) == PROMPTS:
            return


def repeat_effect(trials: Sequence[RepeatTrial]) -> RepeatEffect | None:
    """None where no prompt brought tokens each time it was asked."""
    steps = [counted for trial in trials if (counted := _counted(trial)) is not None]
    if not steps:
        return None
    first = sum(counts[0] for counts in steps)
    again = sum(sum(counts[1:]) / len(counts[1:]) for counts in steps)
    return RepeatEffect(len(steps), first, again, _chance(steps, first))


def _counted(trial: RepeatTrial) -> list[int] | None:
    """Steps each time, up to a token that came every time."""
    if len(trial.tokens) < TIMES or not all(trial.tokens):
        return None
    until = min(tokens[-1] for tokens in trial.tokens)
    return [steps_until(tokens, until) for tokens in trial.tokens]


def _chance(steps: Sequence[Sequence[int]], first: int) -> float:
    """Share of all choices of one answer a prompt whose steps add up to `first` or more: as each
    prompt's total is fixed, these are the choices that save as much."""
    sums: dict[int, float] = {0: 1.0}
    for counts in steps:
        longer: dict[int, float] = defaultdict(float)
        for total, share in sums.items():
            for count in counts:
                longer[total + count] += share / len(counts)
        sums = longer
    return sum(share for total, share in sums.items() if total >= first)


def repeat_trials_from_json(data: Sequence[Mapping[str, Any]]) -> tuple[RepeatTrial, ...]:
    return tuple(RepeatTrial(d["request"], tuple(map(tuple, d["tokens"]))) for d in data)
