"""Requests through a batch scheduler in this process, answers collected as they end."""

from __future__ import annotations

import queue
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from native_engine.batching.admission import Slots
from native_engine.batching.batch_decoder import BatchDecoder, VerifyRule
from native_engine.batching.batch_engine import BatchEngine
from native_engine.batching.batch_scheduler import BatchScheduler
from native_engine.batching.ngram_batch import PerSlotDrafter
from native_engine.batching.sampling import verify
from native_engine.batching.sequence import StopRules
from native_engine.config import EngineConfig, ServedModel
from native_engine.drafter import DRAFTERS
from native_engine.drafters.protocol import BatchDrafter
from native_engine.requests import GenerateRequest, GenerateResult
from native_engine.scheduler import Job
from native_engine.targets.protocol import Target


def batch_engine(
    target: Target,
    *,
    slots: int = 4,
    capacity: int = 160,
    drafter: BatchDrafter | None = None,
    knobs: EngineConfig | None = None,
    reuse: bool = False,
    rule: VerifyRule = verify,
) -> BatchEngine:
    """What `load_batch_engine` builds, around any target."""
    state = target.new_state(slots, capacity)
    if drafter is not None:
        drafter.open(slots, capacity)
    decoder = BatchDecoder(target, state, drafter, knobs or EngineConfig(), StopRules(None), rule)
    served = ServedModel("any", target.vocab_size, 8, 1, capacity, (), False)
    return BatchEngine(served, decoder, Slots(state, slots, capacity, reuse), False)


def ngram(draft_tokens: int = 7) -> PerSlotDrafter:
    return PerSlotDrafter(lambda: DRAFTERS["ngram"]({}, draft_tokens), draft_tokens)


@contextmanager
def scheduling(engine: BatchEngine, max_queued: int = 128) -> Iterator[BatchScheduler]:
    scheduler = BatchScheduler(engine, max_queued)
    try:
        yield scheduler
    finally:
        scheduler.close()
        assert not scheduler.alive


@dataclass
class Asked:
    """One submitted request: what was streamed, and how it ended."""

    job: Job
    streamed: list[int] = field(default_factory=list)
    ends: queue.SimpleQueue[GenerateResult | Exception] = field(default_factory=queue.SimpleQueue)

    def end(self, seconds: float = 60.0) -> GenerateResult | Exception:
        return self.ends.get(timeout=seconds)

    def result(self) -> GenerateResult:
        end = self.end()
        assert isinstance(end, GenerateResult), end
        return end


def ask(scheduler: BatchScheduler, request: GenerateRequest) -> Asked:
    asked = Asked(Job(request, lambda tokens: None, lambda end: None))
    asked.job.on_tokens = asked.streamed.extend
    asked.job.on_done = asked.ends.put
    scheduler.submit([asked.job])
    return asked


def answers(scheduler: BatchScheduler, requests: Sequence[GenerateRequest]) -> list[list[int]]:
    """Output ids of requests submitted at once."""
    return [asked.result().output_ids for asked in [ask(scheduler, r) for r in requests]]
