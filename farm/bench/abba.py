"""Mode `abba`: whole answers alternate, A B B A, all arms resident; the mode for GPUs.

Which arm leads rotates with prompt and repeat, so over two prompts every arm stands in every place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from engines.answers import GenerationRequest
from farm.bench.plan import MeasurementPlan
from farm.bench.protocol import PausableEngine
from farm.bench.recording import Recording, run_from_answer
from farm.bench.session import Session


def measure_abba(
    engines: Mapping[str, PausableEngine],
    requests: Sequence[GenerationRequest],
    plan: MeasurementPlan,
) -> Recording:
    """Record `requests` on all resident `engines`, one whole answer after the other."""
    session = Session.begin(engines, requests, plan)
    with session.others_paused():
        for repeat, prompt in session.rounds():
            for label in session.order(repeat, prompt):
                with session.running(label):
                    client = session.clients[label]
                    client.flush_cache()
                    answer = client.stream(session.requests[prompt])
                session.runs.append(
                    run_from_answer(answer, arm=label, request=prompt, repeat=repeat)
                )
    return session.recording()
