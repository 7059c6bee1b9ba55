"""Names of modes -> how arms that are resident together are measured."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from engines.answers import GenerationRequest
from farm.bench.abba import measure_abba
from farm.bench.blocks import measure_blocks
from farm.bench.errors import MeasurementError
from farm.bench.plan import MeasurementPlan
from farm.bench.protocol import PausableEngine
from farm.bench.recording import Recording
from farm.bench.slices import measure_slices

Mode = Callable[
    [Mapping[str, PausableEngine], Sequence[GenerationRequest], MeasurementPlan], Recording
]
# `launches` needs factories, not resident engines: farm.bench.launches.measure_launches.
MODES: dict[str, Mode] = {
    "slices": measure_slices,
    "abba": measure_abba,
    "blocks": measure_blocks,
}


def measure(
    engines: Mapping[str, PausableEngine],
    requests: Sequence[GenerationRequest],
    plan: MeasurementPlan,
) -> Recording:
    """Time `requests` on all resident engines by `plan.mode`.

    The caller holds the timing lock and has warmed the engines. All engines are running again when
    this returns or raises.

    Args:
        engines: label -> engine; labels name the arms in the recording.

    Raises:
        MeasurementError: unknown mode, no engines or no requests.
        EngineError: what an engine's client raised, unchanged.
    """
    if not engines or not requests:
        raise MeasurementError("nothing to measure", "Give engines and requests.")
    if plan.mode not in MODES:
        raise MeasurementError(
            f"mode {plan.mode!r} does not measure resident engines (measurement.mode)",
            f"Known: {', '.join(sorted(MODES))}; launches has measure_launches.",
        )
    return MODES[plan.mode](engines, requests, plan)
