"""Mode `slices`: all arms stream the same prompt and take turns of a few tenths of a second.

Each arm's process group is stopped and continued, so any engine can be measured over plain HTTP.
Turns run A B, B A, A B, ... (for three arms A B C, C B A), which arm leads rotates with the prompt,
and the slice lengths are drawn afresh each turn and shared by the arms of the turn. Prefill runs
alone, one arm after the other; slices begin once every arm has its first token. An arm left alone
(the others have finished) runs on without pauses.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

from engines.answers import GenerationRequest
from farm.bench.blame import raise_first_failure
from farm.bench.live_stream import LiveStream
from farm.bench.plan import MeasurementPlan
from farm.bench.protocol import PausableEngine
from farm.bench.recording import PREFILL_TURN, Recording, run_from_answer
from farm.bench.session import Session, now

Span = tuple[int, float, float]


def measure_slices(
    engines: Mapping[str, PausableEngine],
    requests: Sequence[GenerationRequest],
    plan: MeasurementPlan,
) -> Recording:
    """Record `requests` on all resident `engines`, slice by slice."""
    session = Session.begin(engines, requests, plan)
    rng = random.Random(plan.seed)
    with session.others_paused():
        for repeat, prompt in session.rounds():
            _one_prompt(session, repeat, prompt, rng)
    return session.recording()


def _one_prompt(session: Session, repeat: int, prompt: int, rng: random.Random) -> None:
    request = session.requests[prompt]
    order = session.order(repeat, prompt)
    streams: dict[str, LiveStream] = {}
    spans: dict[str, list[Span]] = {label: [] for label in order}
    try:
        for label in order:
            with session.running(label):
                session.clients[label].flush_cache()
                start = now()
                streams[label] = LiveStream(session.clients[label], request)
                streams[label].first.wait()
            spans[label].append((PREFILL_TURN, start, now()))
            raise_first_failure(streams, list(streams), asked=label)
        _take_turns(session, order, streams, spans, rng)
        raise_first_failure(streams, order)
    finally:
        # Also after an error: the other arms' streams end by themselves once they run.
        if any(not stream.done.is_set() for stream in streams.values()):
            for label in streams:
                session.engines[label].resume()
            for stream in streams.values():
                stream.done.wait()
            if session.plan.pause_idle:
                for label in streams:
                    session.engines[label].pause()
    for label in order:
        session.runs.append(
            run_from_answer(
                streams[label].answer(),
                arm=label,
                request=prompt,
                repeat=repeat,
                spans=spans[label],
            )
        )


def _take_turns(
    session: Session,
    order: list[str],
    streams: Mapping[str, LiveStream],
    spans: Mapping[str, list[Span]],
    rng: random.Random,
) -> None:
    turn = 0
    while not any(stream.failed for stream in streams.values()):
        live = [label for label in order if not streams[label].done.is_set()]
        if not live:
            return
        length = rng.uniform(*session.plan.slice_s) if len(live) > 1 else None
        for label in live if turn % 2 == 0 else reversed(live):
            start = now()
            with session.running(label):
                streams[label].done.wait(length)
            spans[label].append((turn, start, now()))
        turn += 1
