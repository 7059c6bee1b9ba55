"""Steps counted twice, on engines with and without a memory."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from engines.answers import Answer, GenerationRequest
from farm.bench.kept_state import (
    PROMPTS,
    TOKENS,
    AskedAgain,
    KeptState,
    added,
    ask_again,
    asked_again_from_json,
    kept_state,
)
from farm.bench.modes import measure
from farm.bench.plan import MeasurementPlan
from farm.bench.recording import Recording, Run
from tests.farm.bench.fakes import FakeEngine, Ledger, request

REQUESTS = [request(f"prompt {n}", tokens=30) for n in range(4)]
PLAN = MeasurementPlan(mode="abba", prompts=4, pause_idle=False)


class NgramsKept(FakeEngine):
    """Commits four times as many tokens a step once it has met a prompt."""

    def __init__(self, label: str, ledger: Ledger) -> None:
        super().__init__(label, ledger, per_step=2)
        self.met: set[tuple[int, ...]] = set()

    def stream(
        self,
        asked: GenerationRequest,
        on_event: Callable[..., object] | None = None,
        cut: int | None = None,
    ) -> Answer:
        self.per_step = 8 if asked.prompt_ids in self.met else 2
        self.met.add(asked.prompt_ids)
        return super().stream(asked, on_event, cut)


def found(candidate: FakeEngine, stock: FakeEngine) -> KeptState:
    engines = {"candidate": candidate, "stock": stock}
    recording = measure(engines, REQUESTS, PLAN)
    again = ask_again(engines, REQUESTS, range(4), PLAN)
    assert len(again) == 2 * PROMPTS
    state = kept_state(recording, again, "candidate", "stock")
    assert state is not None
    return state


def test_an_engine_that_remembers_takes_fewer_steps() -> None:
    ledger = Ledger()
    state = found(NgramsKept("candidate", ledger), FakeEngine("stock", ledger, per_step=2))
    # 24 tokens: one, then two a step (12 more events to 25), or eight a step (3 more).
    assert state == KeptState(PROMPTS, 13 * PROMPTS, 4 * PROMPTS, 13 * PROMPTS, 13 * PROMPTS)
    assert state.suspicious


def test_engines_without_a_memory_take_the_same_steps() -> None:
    ledger = Ledger()
    state = found(FakeEngine("candidate", ledger, per_step=3), FakeEngine("stock", ledger))
    assert state.first == state.again and state.stock_first == state.stock_again
    assert not state.suspicious
    # Where stock remembers as well it is not the candidate's doing.
    both = found(NgramsKept("candidate", ledger), NgramsKept("stock", ledger))
    assert both.first > both.again and not both.suspicious


@pytest.mark.parametrize(
    ("state", "suspicious"),
    [
        (KeptState(3, 100, 86, 100, 100), True),
        (KeptState(3, 100, 90, 100, 100), False),
        (KeptState(1, 20, 10, 20, 20), True),
        (KeptState(3, 100, 50, 120, 100), False),
        (KeptState(3, 50, 100, 100, 100), False),
    ],
)
def test_how_many_fewer(state: KeptState, suspicious: bool) -> None:
    assert state.suspicious is suspicious


def run(arm: str, prompt: int, *tokens: int, repeat: int = 0) -> Run:
    times = tuple(float(i) for i in range(len(tokens)))
    return Run(arm, prompt, repeat, 0, (1,) * tokens[-1], "length", None, 0.0, times, times, tokens)


def test_steps_are_counted_to_the_same_token_and_empty_events_are_none() -> None:
    runs = (
        run("candidate", 0, 1, 3, 3, 4, 9),
        run("candidate", 0, 1, 9, repeat=1),
        run("stock", 0, 1, 2, 3),
    )
    recording = Recording("abba", tuple(REQUESTS), runs, {"candidate": "c", "stock": "s"}, 0, 1.0)
    again = (AskedAgain("candidate", 0, (1, 4)), AskedAgain("stock", 0, (1, 2, 3, 8)))
    state = kept_state(recording, again, "candidate", "stock")
    # Candidate to token 4: events at 1, 3, 4; again: 1, 4. Stock to token 3: three both times.
    assert state == KeptState(1, 3, 2, 3, 3)
    assert kept_state(recording, again[:1], "candidate", "stock") is None
    assert added([]) is None
    assert state is not None and added([state, state]) == KeptState(2, 6, 4, 6, 6)


def test_json_and_back() -> None:
    asked = AskedAgain("stock", 2, (1, 5))
    assert asked_again_from_json([{"arm": "stock", "request": 2, "tokens": [1, 5]}]) == (asked,)
    assert TOKENS > 1
