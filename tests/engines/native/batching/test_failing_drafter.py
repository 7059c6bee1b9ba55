"""A drafter whose q is broken, and a device without memory: drafts are lost, never the answer."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch
from torch import Tensor

from native_engine.batching.sequence import Running
from native_engine.batching.step_plan import StepPlanner
from native_engine.config import EngineConfig, SpeculationKnobs
from native_engine.drafters.protocol import Ask, Proposal
from native_engine.drafters.sampling import choose
from native_engine.errors import DeviceFull
from native_engine.requests import GenerateRequest, SamplingOptions
from native_engine.targets.protocol import Rows
from tests.engines.native.batching.fake_target import VOCAB, FakeTarget, greedy_answer
from tests.engines.native.batching.harness import ask, batch_engine, scheduling
from tests.engines.native.batching.test_parallel_drafters import DRAFTERS, drafter_folder
from tests.engines.native.serving import serve
from tests.engines.native.tiny import add_tokenizer, make_folder, reference_greedy

HEAT = SamplingOptions(1.0, seed=4)
FULL = torch.OutOfMemoryError("CUDA out of memory")


class Drawing:
    """Guesses drawn from even odds; of guess `broken` q is NaN."""

    taps: tuple[int, ...] = ()
    draft_tokens = 3

    def __init__(self, broken: int) -> None:
        self.broken = broken

    def open(self, slots: int, capacity: int) -> None: ...

    def reset(self, slot: int, held: int = 0) -> None: ...

    def observe(self, rows: Rows, taps: Sequence[Tensor]) -> None: ...

    def propose(self, asks: Sequence[Ask]) -> Proposal:
        law = torch.full((self.draft_tokens, VOCAB), 1 / VOCAB)
        law[self.broken] = float("nan")
        hot = [law if ask.temperature else None for ask in asks]
        return Proposal([[1, 2, 3] for _ in asks], list(hot))


class WithoutMemory(Drawing):
    def propose(self, asks: Sequence[Ask]) -> Proposal:
        raise FULL


def test_guesses_before_a_broken_q_stay() -> None:
    planner = StepPlanner(Drawing(1), EngineConfig())
    sequences = []
    for heat in (HEAT, None, HEAT):
        request = GenerateRequest("r", (5,), 9, sampling=heat)
        running = Running(request, len(sequences), 1, lambda tokens: None, torch.device("cpu"))
        running.tokens.append(6)
        running.result.output_ids.append(6)
        sequences.append(running)
    hot, cold, again = (part.draft for part in planner.parts(sequences))
    assert (hot.tokens, cold.tokens, again.tokens) == ([1], [1, 2, 3], [1])
    assert hot.q is not None and hot.q.shape == (1, VOCAB) and cold.q is None
    assert planner.dropped == 2


@pytest.mark.parametrize("drafter", [Drawing(0), WithoutMemory(0)], ids=["nan", "memory"])
def test_the_target_decodes_on(drafter: Drawing) -> None:
    requests = [GenerateRequest("g", (1, 2), 12), GenerateRequest("s", (3,), 12, sampling=HEAT)]
    found = []
    for given in (drafter, None):
        engine = batch_engine(FakeTarget(), drafter=given)
        with scheduling(engine) as scheduler:
            asked = [ask(scheduler, request) for request in requests]
            found.append([one.result().output_ids for one in asked])
            dropped = scheduler.gauges()["drafts_dropped"]
            assert (dropped > 5) == (given is not None)
            scheduler.flush()
            assert scheduler.gauges()["drafts_dropped"] == 0
    # A dropped draft takes no random number: the same seed gives what no drafter gives.
    assert found[0] == found[1] and found[0][0] == greedy_answer((1, 2), 12)


def test_a_choice_among_nothing_finite_is_a_column() -> None:
    scores = torch.zeros(2, 5)
    scores[0, 3] = float("nan")
    chosen, drawn = choose(scores, [Ask(0, [1], 1, 1.0), Ask(1, [1], 1, 1.0)])
    assert 0 <= int(chosen[0]) < 5 and drawn[0].isnan().all() and drawn[1].isfinite().all()


@pytest.mark.parametrize("name", ["dflash", "dspark"])
def test_a_parallel_drafter_of_broken_weights(name: str, tmp_path: Path) -> None:
    make_folder(tmp_path)
    add_tokenizer(tmp_path)
    drafter = drafter_folder(tmp_path / name, DRAFTERS[name], 96, 3)
    knobs = EngineConfig(speculation=SpeculationKnobs(name, 3))
    sampling = {"temperature": 1.0, "max_new_tokens": 9, "ignore_eos": True}
    with (
        serve(tmp_path, slots=2, knobs=knobs, drafter=drafter) as (url, state),
        httpx.Client(base_url=url, timeout=60) as client,
    ):
        norm = state.scheduler.engine.decoder.drafter._backbone._norm
        norm._doubled = norm._doubled * float("nan")
        body = {"input_ids": [40, 70, 33], "sampling_params": sampling}
        reply = client.post("/generate", json=body)
        assert reply.status_code == 200 and len(reply.json()["output_ids"]) == 9
        assert client.get("/server_info").json()["slots"]["drafts_dropped"] >= 6


def refuse(*_: Any) -> Any:
    raise FULL


@pytest.mark.parametrize("place", ["_rule", "observe"])
def test_a_step_without_memory_ends_its_requests_and_gives_the_slots_back(place: str) -> None:
    engine = batch_engine(FakeTarget(), slots=2, drafter=Drawing(0))
    engine.decoder.drafter.taps = (0,)  # type: ignore[union-attr]
    where: Any = engine.decoder if place == "_rule" else engine.decoder.drafter
    kept = getattr(where, place)
    requests = [GenerateRequest(f"r{i}", (i, 2), 6) for i in range(3)]
    with scheduling(engine) as scheduler:
        setattr(where, place, refuse)
        ends = [one.end() for one in [ask(scheduler, request) for request in requests]]
        assert all(isinstance(end, DeviceFull) for end in ends)
        assert scheduler.gauges()["slots_used"] == 0
        # A drafter that fails after the last token costs nothing.
        last = ask(scheduler, GenerateRequest("last", (4, 2), 1)).end()
        assert isinstance(last, DeviceFull) == (place == "_rule")
        setattr(where, place, kept)
        for request in requests:
            truth = greedy_answer(request.prompt_ids, 6)
            assert ask(scheduler, request).result().output_ids == truth


def test_memory_that_is_short_for_many_may_do_for_one() -> None:
    engine = batch_engine(FakeTarget(), slots=3)
    rule = engine.decoder._rule

    def narrow(logits: Tensor, drafts: Any) -> Any:
        if len(drafts) > 1:
            raise FULL
        return rule(logits, drafts)

    engine.decoder._rule = narrow
    requests = [GenerateRequest(f"r{i}", (i, 2), 6) for i in range(3)]
    with scheduling(engine) as scheduler:
        asked = [ask(scheduler, request) for request in requests]
        for request, one in zip(requests, asked, strict=True):
            assert one.result().output_ids == greedy_answer(request.prompt_ids, 6)


def test_over_http_it_is_back_pressure(tmp_path: Path) -> None:
    model = make_folder(tmp_path)
    add_tokenizer(tmp_path)
    prompt = [40, 70, 33]
    body = {"input_ids": prompt, "sampling_params": {"max_new_tokens": 5, "ignore_eos": True}}
    with (
        serve(tmp_path, slots=2) as (url, state),
        httpx.Client(base_url=url, timeout=60) as client,
    ):
        decoder = state.scheduler.engine.decoder
        rule, decoder._rule = decoder._rule, refuse
        reply = client.post("/generate", json=body)
        assert reply.status_code == 503 and int(reply.headers["Retry-After"]) >= 1
        assert "no memory left" in reply.json()["error"]["message"]
        streamed = client.post("/generate", json={**body, "stream": True})
        assert '"code":503' in streamed.text and '"status_code":503' in streamed.text
        decoder._rule = rule
        assert client.get("/server_info").json()["slots"]["slots_used"] == 0
        answer = client.post("/generate", json=body).json()["output_ids"]
        assert answer == reference_greedy(model, prompt, 5)
