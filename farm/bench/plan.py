"""How a measurement is spent: prompts, repeats, slices, and when it may end early."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Literal

from farm.bench.errors import MeasurementError
from farm.bench.recording import Recording
from settings.schema import Measurement

FEWEST_PROMPTS = 4
ENOUGH_PROMPTS = 8
# Repeats each estimator needs before more prompts pay better (see docs/measuring.md).
WANTED_REPEATS = {"position_minimum": 6, "position_quartile": 6}

StopRule = Callable[[Recording], str | None]


@dataclass(frozen=True)
class MeasurementPlan:
    """`measure`'s orders.

    `prompts` x `repeats` answers an arm, whole rounds over the prompts (so that the repeats of one
    prompt lie far apart in time). `slice_s` is the range slices are drawn from, in seconds.
    `budget_s` ends the measurement after the answer under way, once `fewest_prompts` are in.
    `pause_idle` stops the process groups of arms that are not running (off on GPUs, where an idle
    engine costs the other nothing and a stopped one may lose its driver's watchdog). `concurrency`
    is how many requests mode `blocks` keeps under way.
    """

    mode: Literal["slices", "abba", "launches", "blocks"] = "slices"
    prompts: int = ENOUGH_PROMPTS
    repeats: int = 1
    slice_s: tuple[float, float] = (0.1, 0.2)
    seed: int = 0
    budget_s: float | None = None
    fewest_prompts: int = FEWEST_PROMPTS
    pause_idle: bool = True
    stop: StopRule | None = None
    concurrency: int = 1

    def __post_init__(self) -> None:
        low, high = self.slice_s
        if self.prompts < 1 or self.repeats < 1 or self.concurrency < 1:
            raise MeasurementError(
                "prompts, repeats and concurrency must be at least 1", "Raise them."
            )
        if not 0 < low <= high:
            raise MeasurementError(f"slice_s {self.slice_s} is no range of seconds", "Mend it.")
        if self.mode == "slices" and not self.pause_idle:
            raise MeasurementError("mode slices must pause idle arms", "Use abba on a GPU.")

    def to_json(self) -> dict[str, Any]:
        return {key: value for key, value in asdict(self).items() if key != "stop"}


def plan_measurement(
    measurement: Measurement,
    *,
    answer_s: float,
    arms: int = 2,
    seconds: float | None = None,
    available_prompts: int | None = None,
    seed: int = 0,
    pause_idle: bool = True,
    stop: StopRule | None = None,
    concurrency: int = 1,
) -> MeasurementPlan:
    """What fits into the setting's time for one candidate.

    Args:
        answer_s: running seconds of one answer, prefill included (from the warm-up).
        seconds: overrides `measurement.seconds_per_candidate`.
        available_prompts: how many prompts there are; default: `measurement.prompts`.
        concurrency: requests at a time, in mode `blocks`.

    Prompts come first, up to the setting's number; what is left buys repeats. An estimator that
    lives on repeats gives prompts up for them, down to `ENOUGH_PROMPTS`.
    """
    seconds = measurement.seconds_per_candidate if seconds is None else seconds
    fits = max(int(seconds / max(answer_s * arms, 1e-6) + 1e-6), FEWEST_PROMPTS)
    top = min(measurement.prompts, available_prompts or measurement.prompts)
    wanted = max(measurement.repeats, WANTED_REPEATS.get(measurement.estimator, 1))
    prompts = min(top, fits)
    if wanted > 1:
        prompts = min(top, max(min(ENOUGH_PROMPTS, top), fits // wanted))
    return MeasurementPlan(
        mode=measurement.mode,
        prompts=prompts,
        repeats=max(measurement.repeats, fits // prompts),
        seed=seed,
        budget_s=seconds,
        fewest_prompts=min(FEWEST_PROMPTS, prompts),
        pause_idle=pause_idle,
        stop=stop,
        concurrency=concurrency,
    )
