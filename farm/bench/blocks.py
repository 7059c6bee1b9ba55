"""Mode `blocks`: c > 1. Fixed blocks of prompts, `concurrency` of them under way at once, all arms
resident, the arms in turn block by block.

A slot takes the block's next prompt as soon as its request has ended. Which arm leads rotates from
block to block, caches are flushed before each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from engines.answers import GenerationRequest
from farm.bench.errors import MeasurementError
from farm.bench.plan import MeasurementPlan
from farm.bench.protocol import PausableEngine
from farm.bench.recording import Recording, run_from_answer
from farm.bench.session import Session, now

PROMPTS_A_SLOT = 4
"""Prompts of a block over its slots: ramp and drain cost about one of them."""


def measure_blocks(
    engines: Mapping[str, PausableEngine],
    requests: Sequence[GenerationRequest],
    plan: MeasurementPlan,
) -> Recording:
    """Record whole blocks of `requests` on all resident `engines`; prompts that fill no block are
    left out.

    Raises:
        MeasurementError: fewer prompts than two blocks.
    """
    size = plan.concurrency * PROMPTS_A_SLOT
    least = max(plan.fewest_prompts, 2 * size)
    session = Session.begin(engines, requests, replace(plan, fewest_prompts=least))
    whole = len(session.requests) // size
    if whole < 2:
        raise MeasurementError(
            f"{len(session.requests)} prompts are not two blocks of {size} (prompts, "
            "serving.concurrency)",
            f"Raise measurement.prompts to at least {2 * size}",
        )
    with session.others_paused(), ThreadPoolExecutor(plan.concurrency) as slots:
        for repeat, prompt in session.rounds():
            block, inside = divmod(prompt, size)
            if not inside and block < whole:
                _one_block(session, repeat, block, range(prompt, prompt + size), slots)
    return session.recording()


def _one_block(
    session: Session, repeat: int, block: int, prompts: range, slots: ThreadPoolExecutor
) -> None:
    for label in session.order(repeat, block):
        with session.running(label):
            client = session.clients[label]
            client.flush_cache()
            start = now()
            answers = list(slots.map(client.stream, [session.requests[p] for p in prompts]))
        session.runs += [
            run_from_answer(
                answer,
                arm=label,
                request=prompt,
                repeat=repeat,
                block=block,
                block_start=start,
            )
            for prompt, answer in zip(prompts, answers, strict=True)
        ]
