"""Asking the verifier-only prompts: stops that occur, many at once, blame and deadlines."""

from __future__ import annotations

import threading
import time
from dataclasses import replace

import pytest

from engines.answers import Answer, GenerationRequest
from engines.errors import EngineCrashed, EngineTimeout
from farm.workers.verifier_set import (
    ask_verifier_set,
    at_once,
    stop_string,
    stop_token,
)
from settings.verifier_prompts import VerifierPrompt
from tests.verifier.oracle import EOS, VOCAB, OracleModel
from tests.verifier.settings_for_tests import tiny
from verifier.ending import StopRules, check_ending

SETTING = tiny("fp32")
LETTERS = "abcdefghijklmnopqrstuvwxyz"


def text_of(ids) -> str:  # type: ignore[no-untyped-def]
    return "".join(f"{LETTERS[i]}{i % 7}" for i in ids)


RULES = StopRules(VOCAB, frozenset({EOS, *SETTING.decoding.stop_token_ids}), text_of)


class Engine:
    """An oracle that keeps every rule of ends, and counts what it is asked."""

    def __init__(self, seed: int = 1) -> None:
        self.model = OracleModel(seed, bf16=False)
        self.asked: list[GenerationRequest] = []
        self.most = 0
        self._now = 0
        self._lock = threading.Lock()

    def __call__(self, request: GenerationRequest) -> Answer:
        with self._lock:
            self.asked.append(request)
            self._now += 1
            self.most = max(self.most, self._now)
        self.work(request)
        whole = self.model.generate(request)
        with self._lock:
            self._now -= 1
        for count in range(1, len(whole.output_ids) + 1):
            if any(stop in text_of(whole.output_ids[:count]) for stop in request.stop):
                return Answer(request, whole.output_ids[:count], "stop")
        return whole

    def work(self, request: GenerationRequest) -> None:
        time.sleep(0.002)


class Meeting(Engine):
    """Requests of a crowd answer once eight of them are there."""

    def __init__(self) -> None:
        super().__init__()
        self.eight = threading.Barrier(8)

    def work(self, request: GenerationRequest) -> None:
        if request.id.startswith("verifier/8/"):
            self.eight.wait(timeout=60)


def prompt(n: int, kind: str = "random_ids", **fields: object) -> VerifierPrompt:
    base = VerifierPrompt(f"1/{kind}/{n}", kind, (n, 3, 5), 30)
    return replace(base, **fields)  # type: ignore[arg-type]


def stops(n: int, clients: int = 1) -> list[VerifierPrompt]:
    return [
        prompt(
            n,
            f"stop_{case}",
            id=f"{clients}/stop_{case}/{n}",
            stop_case=case,
            ignore_eos=case == "ignored",
            clients=clients,
        )
        for case in ("token", "string", "ignored")
    ]


def test_stops_are_taken_from_the_middle_of_stocks_answer_and_occur() -> None:
    stock, candidate = Engine(), Engine()
    prompts = [p for n in range(4) for p in stops(n)]
    asked = ask_verifier_set(prompts, SETTING, RULES, stock, candidate)
    assert len(stock.asked) == 4, "one answer of stock serves a prompt's three cases"
    assert all(r.ignore_eos and not r.stop and not r.stop_token_ids for r in stock.asked)
    ends = {answer.request.id: check_ending(answer, RULES) for answer in asked.answers}
    assert all(end.ok for end in ends.values()), ends
    reasons = {(name.split("/")[2], end.reason) for name, end in ends.items()}
    assert reasons == {
        ("stop_token", "stop token"),
        ("stop_string", "stop string"),
        ("stop_ignored", "length limit reached"),
    }
    cut_short = [a for a in asked.answers if not a.request.ignore_eos]
    assert not any(a.output_ids[-1] in RULES.eos_ids for a in cut_short)
    whole = {a.request.prompt_ids: a.output_ids for a in asked.answers if a.request.ignore_eos}
    cut = [a for a in asked.answers if not a.request.ignore_eos]
    assert all(a.output_ids == whole[a.request.prompt_ids][: len(a.output_ids)] for a in cut)
    assert all(1 <= len(a.output_ids) < 30 for a in cut)
    ignored = [a.request for a in asked.answers if a.request.ignore_eos]
    assert all(set(r.stop_token_ids) - set(SETTING.decoding.stop_token_ids) for r in ignored)


def test_a_stop_string_lies_across_two_tokens() -> None:
    ids = Engine()(GenerationRequest("r", (1, 2), 20, ignore_eos=True)).output_ids
    piece = stop_string(ids, text_of)
    assert piece is not None
    first = next(n for n in range(1, 21) if piece in text_of(ids[:n]))
    assert piece not in text_of(ids[first - 1 : first])
    assert abs(first - 10) <= 3


def test_text_without_a_place_for_a_stop_string_skips_that_case() -> None:
    assert stop_string((5, 6, 7), lambda ids: "\ufffd" * len(ids)) is None
    assert stop_string((5, 6, 7), lambda ids: "") is None
    assert stop_token(()) is None
    asked = ask_verifier_set(
        stops(1), SETTING, replace(RULES, detokenize=lambda ids: ""), Engine(), Engine()
    )
    assert asked.skipped == ("1/stop_string/1",)
    assert [r.family for r in asked.requests] == ["c1 stop_token", "c1 stop_ignored"]


@pytest.mark.parametrize(
    ("ids", "token"), [((4, 4, 4, 4), 4), ((1, 2, 3, 4, 5), 3), ((1, 1, 1, 9, 1), 9), ((7,), 7)]
)
def test_the_stop_token_is_new_where_it_is_taken(ids: tuple[int, ...], token: int) -> None:
    assert stop_token(ids) == token


def test_eight_are_under_way_at_once_and_answers_keep_their_order() -> None:
    engine = Meeting()
    prompts = [prompt(n, id=f"8/random_ids/{n}", clients=8) for n in range(16)]
    prompts += [prompt(n) for n in range(5)]
    asked = ask_verifier_set(prompts, SETTING, RULES, Engine(), engine)
    assert engine.most == 8
    assert [r.prompt_ids[0] for r in asked.requests] == [*range(5), *range(16)]
    assert [a.request for a in asked.answers] == list(asked.requests)
    assert {r.family for r in asked.requests} == {"c1 random_ids", "c8 random_ids"}
    alone = engine.asked[:5]
    assert [r.id for r in alone] == [f"verifier/1/random_ids/{n}" for n in range(5)]


def test_an_engine_that_fails_under_load_is_an_error_at_once() -> None:
    count = 0

    def dies(request: GenerationRequest) -> Answer:
        nonlocal count
        count += 1
        raise EngineCrashed("gone")

    requests = [GenerationRequest(f"r{n}", (1,), 2) for n in range(100)]
    with pytest.raises(EngineCrashed, match="gone"):
        at_once(dies, requests, 8)
    assert count < 100


def test_the_set_has_a_deadline() -> None:
    verification = SETTING.verification.model_copy(update={"deadline_s": 0.05})
    setting = SETTING.model_copy(update={"verification": verification})

    def slow(request: GenerationRequest) -> Answer:
        time.sleep(0.03)
        return Answer(request, (1,), "stop")

    with pytest.raises(EngineTimeout, match=r"0\.05 s"):
        ask_verifier_set([prompt(n) for n in range(9)], setting, RULES, Engine(), slow)
