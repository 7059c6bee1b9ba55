"""Memory told from chance: engines with one, engines that toss coins, and every choice counted."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Sequence

import pytest

from engines.answers import Answer, GenerationRequest
from farm.bench.kept_state import TOKENS
from farm.bench.plan import MeasurementPlan
from farm.bench.repeat_trials import (
    CHANCE,
    PROMPTS,
    TIMES,
    RepeatEffect,
    RepeatTrial,
    ask_repeatedly,
    repeat_effect,
    repeat_trials_from_json,
)
from tests.farm.bench.fakes import FakeEngine, Ledger, request

REQUESTS = [request(f"{n} words of prompt number {n * 7919}", tokens=30) for n in range(4)]
PLAN = MeasurementPlan(mode="abba", prompts=4, seed=3)


class Drafting(FakeEngine):
    """Commits a number of tokens a step that `per_step_for` gives for how often it met a prompt."""

    def __init__(self, label: str, ledger: Ledger, per_step_for: Callable[[int], int]) -> None:
        super().__init__(label, ledger, ticks=0)
        self.per_step_for = per_step_for
        self.met: dict[tuple[int, ...], int] = {}

    def stream(
        self,
        asked: GenerationRequest,
        on_event: Callable[..., object] | None = None,
        cut: int | None = None,
    ) -> Answer:
        times = self.met.get(asked.prompt_ids, 0)
        self.met[asked.prompt_ids] = times + 1
        self.per_step = self.per_step_for(times)
        return super().stream(asked, on_event, cut)


def effect(candidate: FakeEngine, requests: Sequence[GenerationRequest] = REQUESTS) -> RepeatEffect:
    stock = FakeEngine("stock", candidate.ledger)
    engines = {"candidate": candidate, "stock": stock}
    trials = ask_repeatedly(engines, "candidate", requests, PLAN)
    assert all(engine.is_running.is_set() for engine in engines.values())
    assert len({trial.request for trial in trials}) == len(trials) == PROMPTS
    found = repeat_effect(trials)
    assert found is not None
    return found


def test_an_engine_that_remembers() -> None:
    ledger = Ledger()
    found = effect(Drafting("candidate", ledger, lambda times: 8 if times else 2))
    # 24 tokens: one, then two a step (12 more events to 25), or eight a step (3 more).
    assert (found.prompts, found.first, found.again) == (PROMPTS, 13 * PROMPTS, 4 * PROMPTS)
    assert found.chance == pytest.approx(TIMES**-PROMPTS)
    assert found.kept
    sent = [what for label, what in ledger.events if what.startswith("send")]
    assert len(sent) == PROMPTS * TIMES
    assert all("~" in what for what in sent), "prompts that nobody has asked"
    places = [i for i, (_, what) in enumerate(ledger.events) if what.startswith("send")]
    assert all(ledger.events[i - 1] == ("candidate", "flush") for i in places)
    assert not {what for label, what in ledger.events if label == "stock"} & {"flush"}


def test_it_is_found_though_some_prompts_gain_nothing() -> None:
    met = itertools.count()
    ledger = Ledger()

    def per_step(times: int) -> int:
        prompt = next(met) // TIMES
        return 8 if times and prompt % 4 else 2

    found = effect(Drafting("candidate", ledger, per_step))
    assert found.kept and found.chance == pytest.approx(3.0 ** -(PROMPTS - 3))


def test_an_engine_without_a_memory_takes_the_same_steps() -> None:
    found = effect(Drafting("candidate", Ledger(), lambda _: 3))
    assert found.first == found.again and found.chance == 1.0 and not found.kept


def test_an_engine_that_tosses_coins_is_accused_less_often_than_stated() -> None:
    rng = random.Random(5)
    accused = campaigns = 0
    for _ in range(4000):
        trials = [
            RepeatTrial(str(n), tuple(tossed(rng) for _ in range(TIMES))) for n in range(PROMPTS)
        ]
        found = repeat_effect(trials)
        assert found is not None
        campaigns += 1
        accused += found.kept
    # At most 4 are expected of 4000; eleven or more would have a chance of 1 in 350.
    assert accused / campaigns <= 2.5 * CHANCE


def tossed(rng: random.Random) -> tuple[int, ...]:
    """The events of an answer whose steps bring one token or nine: the widest there is here."""
    had = [1]
    while had[-1] < TOKENS:
        had.append(had[-1] + rng.choice((1, 9)))
    return tuple(had)


def test_what_chance_gives_is_counted_over_every_choice() -> None:
    rng = random.Random(7)
    for _ in range(20):
        steps = [[rng.randint(1, 9) for _ in range(TIMES)] for _ in range(5)]
        trials = [
            RepeatTrial(str(n), tuple(tuple(range(1, count + 1)) for count in counts))
            for n, counts in enumerate(steps)
        ]
        # Up to the token that came every time, each answer of one token an event has equal steps.
        found = repeat_effect(trials)
        assert found is not None and found.chance == 1.0
        trials = [
            RepeatTrial(str(n), tuple((*range(1, count), 50) for count in counts))
            for n, counts in enumerate(steps)
        ]
        found = repeat_effect(trials)
        assert found is not None
        first = sum(counts[0] for counts in steps)
        choices = list(itertools.product(*steps))
        expected = sum(sum(choice) >= first for choice in choices) / len(choices)
        assert found.chance == pytest.approx(expected)
        assert found.first == first
        assert found.again == pytest.approx(sum(sum(counts[1:]) / 2 for counts in steps))


def test_prompts_without_a_variant_or_an_answer_are_left_out() -> None:
    short = [request("abc"), request("abd")]
    stock, candidate = FakeEngine("stock"), FakeEngine("candidate")
    engines = {"candidate": candidate, "stock": stock}
    assert ask_repeatedly(engines, "candidate", short, PLAN) == ()
    assert repeat_effect([]) is None
    assert repeat_effect([RepeatTrial("a", ((1, 2), (), (1, 2)))]) is None
    assert repeat_effect([RepeatTrial("a", ((1, 2), (1, 2)))]) is None


def test_a_small_gain_is_none_however_sure() -> None:
    trials = [
        RepeatTrial(str(n), (tuple(range(1, 25)), *[(*range(1, 23), 24)] * 2)) for n in range(9)
    ]
    found = repeat_effect(trials)
    assert found is not None and found.chance < CHANCE
    assert found.first == 9 * 24 and found.again == 9 * 23
    assert not found.kept


def test_json_and_back() -> None:
    trial = RepeatTrial("a", ((1, 5), (1, 2, 5), (5,)))
    data = [{"request": "a", "tokens": [[1, 5], [1, 2, 5], [5]]}]
    assert repeat_trials_from_json(data) == (trial,)
