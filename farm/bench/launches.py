"""Mode `launches`: arms that cannot be resident together are launched in turn, A B B A.

Slow drift lies between launches here, so ratios need several of them, and their spread enters.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from engines.answers import GenerationRequest
from farm.bench.abba import measure_abba
from farm.bench.plan import MeasurementPlan
from farm.bench.protocol import PausableEngine
from farm.bench.recording import Recording, Run
from farm.bench.session import now
from farm.bench.warm import warm

Launch = Callable[[], PausableEngine]


def measure_launches(
    factories: Mapping[str, Launch],
    requests: Sequence[GenerationRequest],
    plan: MeasurementPlan,
    *,
    launches: int = 2,
    warm_requests: Sequence[GenerationRequest] = (),
    warm_rounds: int = 12,
) -> Recording:
    """Launch every arm `launches` times in counterbalanced order and record each launch alone.

    Args:
        factories: arm -> launches it and returns it ready; it is stopped here.
        warm_requests: what each launch is warmed with; none: the first request.
    """
    started = now()
    runs: list[Run] = []
    trees: dict[str, str] = {}
    notes: list[str] = []
    # One arm at a time: a rule about two arms, or a share of the budget, means nothing inside.
    inner = replace(plan, stop=None, budget_s=None, pause_idle=False)
    for launch in range(launches):
        labels = list(factories)
        for label in labels if (launch + plan.seed) % 2 == 0 else labels[::-1]:
            engine = factories[label]()
            try:
                trees[label] = engine.tree_hash
                warmed = warm(engine, warm_requests or requests[:1], max_rounds=warm_rounds)
                if not warmed.settled:
                    notes.append(f"{label}, launch {launch}: {warmed.note}")
                alone = measure_abba({label: engine}, requests, inner)
            finally:
                engine.stop()
            runs += [replace(run, launch=launch) for run in alone.runs]
    return Recording(
        mode="launches",
        requests=tuple(requests[: plan.prompts]),
        runs=tuple(runs),
        trees={label: trees[label] for label in factories if label in trees},
        seed=plan.seed,
        seconds=now() - started,
        plan={**plan.to_json(), "launches": launches},
        notes=tuple(notes),
    )
