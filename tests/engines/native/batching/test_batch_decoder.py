"""Steps of many sequences on a target that is strict about the protocol: text, isolation, rows."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from native_engine.batching.sequence import Running
from native_engine.config import BatchingKnobs, EngineConfig, PrefillKnobs
from native_engine.drafters.protocol import Ask, Proposal
from native_engine.errors import NotFinite
from native_engine.requests import GenerateRequest, LogprobOptions, SamplingOptions
from native_engine.targets.protocol import Rows
from tests.engines.native.batching.fake_target import VOCAB, FakeTarget, greedy_answer, logits_after
from tests.engines.native.batching.harness import answers, ask, batch_engine, ngram, scheduling

SMALL = EngineConfig(prefill=PrefillKnobs(5, 3), batching=BatchingKnobs(24, 6))


class HalfRight:
    """Drafts the true continuation with random mistakes, and checks what it is shown."""

    taps = (2, 0)
    draft_tokens = 4

    def open(self, slots: int, capacity: int) -> None:
        self.seen = [0] * slots
        self.random = random.Random(3)

    def reset(self, slot: int, held: int = 0) -> None:
        self.seen[slot] = held

    def observe(self, rows: Rows, taps: Sequence[Tensor]) -> None:
        for slot, start, begin, end in rows.spans:
            assert start == self.seen[slot]
            positions = torch.arange(start, start + end - begin).float()
            assert torch.equal(taps[0][begin:end, 0], positions + 2000)
            assert torch.equal(taps[1][begin:end, 0], positions)
            self.seen[slot] += end - begin

    def propose(self, asks: Sequence[Ask]) -> Proposal:
        drafts = []
        for a in asks:
            assert self.seen[a.slot] == len(a.context_ids) - 1
            truth = greedy_answer(a.context_ids, a.limit)
            drafts.append([t if self.random.random() < 0.7 else (t + 1) % VOCAB for t in truth])
        return Proposal(drafts, [None] * len(asks))


class Truthful(HalfRight):
    """Drafts the true continuation."""

    def propose(self, asks: Sequence[Ask]) -> Proposal:
        drafts = [greedy_answer(a.context_ids, a.limit) for a in asks]
        return Proposal(drafts, [None] * len(asks))


def random_requests(count: int, seed: int, longest: int = 40) -> list[GenerateRequest]:
    generator = random.Random(seed)
    return [
        GenerateRequest(
            f"r{i}",
            tuple(generator.randrange(VOCAB) for _ in range(generator.randint(1, longest))),
            generator.randint(1, longest),
        )
        for i in range(count)
    ]


@pytest.mark.parametrize("drafter", [None, ngram(), HalfRight()], ids=["ar", "ngram", "taps"])
@pytest.mark.parametrize("rewinds", [True, False])
def test_every_answer_is_the_targets_own(drafter: object, rewinds: bool) -> None:
    target = FakeTarget(rewinds)
    engine = batch_engine(target, slots=5, drafter=drafter, knobs=SMALL)  # type: ignore[arg-type]
    requests = random_requests(24, 1)
    with scheduling(engine) as scheduler:
        found = answers(scheduler, requests)
    assert found == [greedy_answer(r.prompt_ids, r.max_new_tokens) for r in requests]
    assert max(sum(rows.counts) for rows in target.batches) <= 24
    assert max(len(rows.slots) for rows in target.batches) == 5
    # Prompts were read in pieces beside sequences that decode.
    assert any(1 in rows.counts and 5 in rows.counts for rows in target.batches)


def test_counts_add_up() -> None:
    engine = batch_engine(FakeTarget(), drafter=HalfRight(), knobs=SMALL)
    requests = [replace(r, max_new_tokens=30) for r in random_requests(6, 2)]
    with scheduling(engine) as scheduler:
        asked = [ask(scheduler, r) for r in requests]
        results = [a.result() for a in asked]
    times = engine.decoder.times
    for result in results:
        # The prompt's own token, then one token a step beside the accepted drafts.
        assert 1 + result.steps + result.accepted == 30
        assert 0 < result.accepted < result.drafted
    assert times.prompt_tokens == sum(len(r.prompt_ids) for r in requests)
    assert times.drafted == sum(r.drafted for r in results)
    assert times.committed == sum(r.steps + r.accepted for r in results) == 29 * 6
    assert times.rows == times.drafted + sum(r.steps for r in results)


def test_drafts_shrink_before_the_row_budget_breaks() -> None:
    target = FakeTarget()
    knobs = EngineConfig(batching=BatchingKnobs(16, 4))
    engine = batch_engine(target, slots=6, drafter=HalfRight(), knobs=knobs)
    requests = [replace(r, max_new_tokens=30) for r in random_requests(6, 3)]
    with scheduling(engine) as scheduler:
        assert answers(scheduler, requests) == [greedy_answer(r.prompt_ids, 30) for r in requests]
    assert max(sum(rows.counts) for rows in target.batches) == 16


def test_a_sequence_with_broken_logits_ends_alone() -> None:
    target = FakeTarget()
    requests = [replace(r, max_new_tokens=25) for r in random_requests(6, 4)]
    truths = [greedy_answer(r.prompt_ids, 25) for r in requests]
    bad = truths[2][10]
    target.poison = {bad}
    engine = batch_engine(target, slots=6, drafter=HalfRight(), knobs=SMALL)
    with scheduling(engine) as scheduler:
        ends = [a.end() for a in [ask(scheduler, r) for r in requests]]
        after = ask(scheduler, GenerateRequest("x", (1 if bad != 1 else 2,), 1))
        assert after.result().output_ids == greedy_answer((1 if bad != 1 else 2,), 1)
        assert scheduler.load == (0, 0)
    for request, truth, end in zip(requests, truths, ends, strict=True):
        # Nothing is chosen after the last token, nor inside a prompt, nor after a refused guess.
        if bad in [request.prompt_ids[-1], *truth[:-1]]:
            assert isinstance(end, NotFinite)
        else:
            assert not isinstance(end, Exception) and end.output_ids == truth
    assert any(isinstance(end, NotFinite) for end in ends)
    assert not all(isinstance(end, NotFinite) for end in ends)


def test_what_was_chosen_before_a_broken_row_is_sent() -> None:
    truth = greedy_answer((1, 2), 30)
    at = next(i for i, token in enumerate(truth) if i > 8 and token not in (1, 2, *truth[:i]))
    target = FakeTarget()
    target.poison = {truth[at]}
    engine = batch_engine(target, drafter=Truthful(), knobs=SMALL)
    with scheduling(engine) as scheduler:
        asked = ask(scheduler, GenerateRequest("r", (1, 2), 30))
        assert isinstance(asked.end(), NotFinite)
        assert asked.streamed == truth[: at + 1]
        # The last token of an answer is never read.
        whole = ask(scheduler, GenerateRequest("w", (1, 2), at + 1))
        assert whole.result().output_ids == truth[: at + 1]


def test_a_request_that_breaks_the_forward_pass_ends_alone() -> None:
    target = FakeTarget()
    target.crash = {7}
    requests = [
        replace(r, prompt_ids=tuple(t for t in r.prompt_ids if t != 7) or (1,))
        for r in random_requests(5, 5, 12)
    ]
    requests.insert(2, GenerateRequest("bad", (3, 4, 7), 5))
    engine = batch_engine(target, slots=6, knobs=SMALL)
    with scheduling(engine) as scheduler:
        ends = [a.end() for a in [ask(scheduler, r) for r in requests]]
    for request, end in zip(requests, ends, strict=True):
        truth = greedy_answer(request.prompt_ids, request.max_new_tokens)
        if 7 in (*request.prompt_ids, *truth[:-1]):
            assert isinstance(end, RuntimeError)
        else:
            assert not isinstance(end, Exception) and end.output_ids == truth
    assert sum(isinstance(end, RuntimeError) for end in ends) < len(requests)


def test_a_failing_callback_ends_its_request_alone() -> None:
    def broken(tokens: list[int]) -> None:
        raise ValueError("the client's loop is closed")

    engine = batch_engine(FakeTarget(), knobs=SMALL)
    good = GenerateRequest("good", (1, 2), 20)
    with scheduling(engine) as scheduler:
        bad = ask(scheduler, GenerateRequest("bad", (5,), 20))
        bad.job.on_tokens = broken
        other = ask(scheduler, good)
        assert other.result().output_ids == greedy_answer((1, 2), 20)


def test_stops_and_forcing_records() -> None:
    prompt = tuple(range(3, 15))
    truth = greedy_answer(prompt, 30)
    engine = batch_engine(FakeTarget(), drafter=HalfRight(), knobs=SMALL)
    forced = GenerateRequest("f", prompt, 0, logprobs=LogprobOptions(4, 2, 3))
    scored = GenerateRequest("s", prompt, 9, logprobs=LogprobOptions(None, 1, 0))
    stopped = GenerateRequest("t", prompt, 30, frozenset([truth[12]]))
    with scheduling(engine) as scheduler:
        asked = [ask(scheduler, r) for r in (forced, scored, stopped)]
        force, score, stop = (a.result() for a in asked)
    assert stop.output_ids == truth[: truth.index(truth[12]) + 1]
    assert stop.finish == {"type": "stop", "matched": truth[12]}
    assert score.output_ids == truth[:9] and score.outputs is not None
    assert [t[1] for t in score.outputs.tokens] == truth[:9]
    assert (force.output_ids, force.finish) == ([], {"type": "length", "length": 0})
    assert force.inputs is not None and force.outputs is not None
    assert len(force.inputs.tokens) == len(force.inputs.raw_tops) == 8
    for position in range(4, 11):
        row = logits_after(prompt[: position + 1])
        expected = row.log_softmax(-1)[prompt[position + 1]].item()
        logprob, token, _ = force.inputs.tokens[position - 3]
        assert token == prompt[position + 1] and logprob == pytest.approx(expected, abs=1e-5)
        raw = force.inputs.raw_tops[position - 3]
        assert raw is not None and [i for _, i in raw] == row.topk(3).indices.tolist()
    last = force.outputs.raw_tops
    assert len(last) == 1 and last[0] is not None and last[0][0][1] == truth[0]


def test_a_seed_repeats_a_sampled_answer() -> None:
    engine = batch_engine(FakeTarget(), knobs=SMALL)
    with scheduling(engine) as scheduler:
        found = [
            answers(
                scheduler, [GenerateRequest("r", (1, 2), 20, sampling=SamplingOptions(1.0, seed=s))]
            )
            for s in (5, 5, 6)
        ]
    assert found[0] == found[1] != found[2]
    assert found[0] != [greedy_answer((1, 2), 20)]


def test_running_knows_what_is_scored() -> None:
    request = GenerateRequest("r", tuple(range(10)), 0, logprobs=LogprobOptions(4, 0, 0))
    running = Running(request, 0, 0, lambda tokens: None, torch.device("cpu"))
    assert list(running.scored(3)) == []
    running.held = 3
    assert list(running.scored(4)) == [4, 5, 6]
    running.held = 7
    assert list(running.scored(3)) == [7, 8]
