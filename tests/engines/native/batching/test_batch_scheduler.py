"""Queueing, back-pressure, cancellation, order, closing."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from native_engine.errors import BadRequest, QueueFull, TooManyRequests
from native_engine.requests import GenerateRequest, GenerateResult
from native_engine.scheduler import Job
from tests.engines.native.batching.fake_target import FakeTarget, greedy_answer
from tests.engines.native.batching.harness import Asked, answers, ask, batch_engine, scheduling


class Gate:
    """Holds the engine thread in a forward pass until it is opened."""

    def __init__(self, target: FakeTarget) -> None:
        self.entered, self.open = threading.Event(), threading.Event()
        forward = target.forward

        def gated(*args: object) -> object:
            self.entered.set()
            assert self.open.wait(30)
            return forward(*args)  # type: ignore[arg-type]

        target.forward = gated  # type: ignore[assignment, method-assign]


def wait_until(condition: Callable[[], bool], seconds: float = 30.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.002)


def request(name: str, *ids: int, new: int = 5) -> GenerateRequest:
    return GenerateRequest(name, ids or (1, 2), new)


def test_a_full_queue_refuses_all_of_a_call_and_counts_free_slots() -> None:
    target = FakeTarget()
    gate = Gate(target)
    with scheduling(batch_engine(target, slots=2), max_queued=3) as scheduler:
        first = ask(scheduler, request("a"))
        assert gate.entered.wait(10)
        waiting = [ask(scheduler, request(f"w{i}")) for i in range(3)]
        assert sum(scheduler.load) == 4
        jobs = [Job(request(f"x{i}"), lambda t: None, lambda e: None) for i in range(2)]
        with pytest.raises(QueueFull, match="limit 3"):
            scheduler.submit(jobs)
        assert sum(scheduler.load) == 4
        scheduler.submit(jobs[:1])
        with pytest.raises(QueueFull):
            scheduler.submit(jobs[1:])
        with pytest.raises(TooManyRequests, match="at most 5"):
            scheduler.submit(jobs * 3)
        gate.open.set()
        truth = greedy_answer((1, 2), 5)
        assert [a.result().output_ids for a in (first, *waiting)] == [truth] * 4
        wait_until(lambda: scheduler.load == (0, 0))


def test_a_request_that_fits_no_slot_is_refused_before_it_waits() -> None:
    with scheduling(batch_engine(FakeTarget(), capacity=20)) as scheduler:
        with pytest.raises(BadRequest, match="20"):
            ask(scheduler, request("a", new=19))
        assert ask(scheduler, request("a", new=18)).result().finish == {
            "type": "length",
            "length": 18,
        }


def test_requests_are_admitted_in_order_of_arrival() -> None:
    target = FakeTarget()
    gate = Gate(target)
    ended: list[str] = []
    with scheduling(batch_engine(target, slots=2)) as scheduler:
        asked: list[Asked] = []
        for i in range(8):
            one = ask(scheduler, request(f"r{i}", i + 1, new=4))
            put = one.job.on_done
            one.job.on_done = lambda end, name=f"r{i}", put=put: (ended.append(name), put(end))  # type: ignore[misc]
            asked.append(one)
        gate.open.set()
        for one in asked:
            one.result()
    assert ended == [f"r{i}" for i in range(8)]


def test_cancelled_requests_leave_and_others_go_on() -> None:
    target = FakeTarget()
    gate = Gate(target)
    with scheduling(batch_engine(target, slots=2)) as scheduler:
        running = ask(scheduler, request("a", new=100))
        other = ask(scheduler, request("b", 5, new=30))
        waiting = ask(scheduler, request("c"))
        last = ask(scheduler, request("d", 9))
        assert gate.entered.wait(10)
        scheduler.cancel(waiting.job)
        scheduler.cancel(running.job)
        gate.open.set()
        end = running.result()
        assert end.finish == {"type": "abort", "message": "cancelled by the client"}
        assert len(end.output_ids) <= 1
        assert other.result().output_ids == greedy_answer((5,), 30)
        assert last.result().output_ids == greedy_answer((9,), 5)
        wait_until(lambda: scheduler.load == (0, 0))
        assert waiting.ends.empty()
        assert scheduler.gauges()["slots_used"] == 0


def test_closing_ends_what_runs_and_waits() -> None:
    target = FakeTarget()
    gate = Gate(target)
    with scheduling(batch_engine(target, slots=1)) as scheduler:
        asked = [ask(scheduler, request(f"r{i}", new=100)) for i in range(3)]
        assert gate.entered.wait(10)
        threading.Timer(0.1, gate.open.set).start()
    for one in asked:
        end = one.end(5)
        assert isinstance(end, GenerateResult) and end.finish is not None
        assert end.finish["type"] == "abort"
    with pytest.raises(QueueFull, match="stopped"):
        scheduler.submit([asked[0].job])


def test_an_engine_that_is_beyond_repair_answers_everyone_and_says_so() -> None:
    target = FakeTarget()
    gate = Gate(target)
    engine = batch_engine(target, slots=1)
    with scheduling(engine) as scheduler:
        asked = [ask(scheduler, request(f"r{i}", new=1)) for i in range(3)]
        assert gate.entered.wait(10)
        engine.slots.take = lambda request: 1 / 0  # type: ignore[assignment, method-assign, return-value]
        gate.open.set()
        assert asked[0].result().output_ids == greedy_answer((1, 2), 1)
        assert all(isinstance(one.end(), ZeroDivisionError) for one in asked[1:])
        wait_until(lambda: not scheduler.alive)
        with pytest.raises(QueueFull, match="stopped"):
            ask(scheduler, request("late"))


@pytest.mark.parametrize("rewinds", [True, False])
def test_reuse_changes_no_token_and_computes_fewer(rewinds: bool) -> None:
    base = tuple(range(30))
    first = request("a", *base, new=10)
    answer = tuple(greedy_answer(base, 10))
    # A next turn of the same text, a sibling, the same again.
    requests = [
        request("b", *base, *answer, 3, 4),
        request("c", *base[:20], 7),
        request("d", *base),
    ]
    for reuse in (False, True):
        engine = batch_engine(FakeTarget(rewinds), slots=1, reuse=reuse)
        with scheduling(engine) as scheduler:
            answers(scheduler, [first])
            results = [ask(scheduler, r).result() for r in requests]
            gauges = scheduler.gauges()
            for r, result in zip(requests, results, strict=True):
                assert result.output_ids == greedy_answer(r.prompt_ids, 5)
            cached = [result.cached for result in results]
            assert cached == ([0, 0, 0] if not reuse else [39, 20, 20] if rewinds else [39, 0, 0])
            assert gauges["cached_tokens"] == sum(cached)
            assert gauges["prefix_hits"] == sum(c > 0 for c in cached)
            computed = engine.decoder.times.prompt_tokens
            assert computed == 30 + sum(len(r.prompt_ids) for r in requests) - sum(cached)
            assert gauges["tokens_kept"] == (34 if reuse else 0)
            scheduler.flush()
            assert ask(scheduler, first).result().cached == 0
