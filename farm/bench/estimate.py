"""Recordings in, ratios with intervals out. The one door between measuring and deciding."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from farm.bench.errors import MeasurementError
from farm.bench.estimators import get_estimator
from farm.bench.estimators.cells import cells_of
from farm.bench.memoisation import memoisation_note
from farm.bench.recording import Recording, merge_launches
from farm.bench.steps import accept_length, step_claims
from farm.results import RatioInterval
from farm.statistics.launch_spread import UNKNOWN, LaunchSpread
from farm.statistics.ratio_interval import Bounds, LogInterval, log_interval


@dataclass(frozen=True)
class Estimate:
    """A speed ratio and what it is made of: ratio = tau x step, each with its own interval from
    the same resamples.

    `tau` is counted (accept lengths, no clock). `step` > 1 means that the numerator's steps are
    quicker. `accept_length` by arm. `launch` is the launch spread in the interval.
    """

    ratio: RatioInterval
    tau: RatioInterval
    step: RatioInterval
    mean_throughput_ratio: RatioInterval
    accept_length: dict[str, float]
    launch: LaunchSpread = UNKNOWN
    notes: tuple[str, ...] = ()

    @property
    def tau_ratio(self) -> float:
        return self.tau.ratio

    @property
    def step_ratio(self) -> float:
        return self.step.ratio


@dataclass(frozen=True)
class Calibration:
    """What the A/A placebo showed: its interval, the floor a lower bound must exceed (at least 1),
    and the spread between launches, which enters every later interval."""

    interval: RatioInterval
    floor: float
    launch: LaunchSpread = field(default=UNKNOWN)


def estimate(
    recordings: Recording | Sequence[Recording],
    numerator: str = "candidate",
    denominator: str = "stock",
    estimator: str = "quiet_time",
    *,
    baseline_name: str | None = None,
    launch: LaunchSpread = UNKNOWN,
    confidence: float = 0.95,
    seed: int = 0,
) -> Estimate:
    """Speed of `numerator` over `denominator` (> 1: the numerator is faster).

    Args:
        recordings: one a launch; the arms of each were measured interleaved.
        baseline_name: what the denominator is called in reports; default: its arm and tree hash.
        launch: launch spread from `aa_calibration`.

    Raises:
        MeasurementError: unknown estimator or arm, or fewer than two prompts with decode steps.
    """
    recording = _merged(recordings)
    tree = recording.trees.get(denominator, "")
    name = baseline_name or f"{denominator}-{tree[:12]}"
    cells = cells_of(recording, numerator, denominator)

    def interval(which: str) -> LogInterval:
        try:
            return log_interval(
                get_estimator(which)(cells), launch=launch, confidence=confidence, seed=seed
            )
        except ValueError as error:
            raise MeasurementError(
                f"{numerator}/{denominator}: {error}", "Measure more prompts."
            ) from error

    main = interval(estimator)
    plain = main if estimator == "mean_throughput" else interval("mean_throughput")
    lengths = {
        arm: accept_length([run for run in recording.runs if run.arm == arm])
        for arm in recording.arms()
    }
    # A block holds every prompt once: there is nothing to remember inside it.
    remembered = None if recording.mode == "blocks" else memoisation_note(cells, numerator)

    units = "blocks" if recording.mode == "blocks" else "prompts"

    def named(found: LogInterval, part: Bounds, which: str) -> RatioInterval:
        method = (
            f"{which}; {confidence * 100:.4g} % {found.kind}; "
            f"{found.prompts} {units} x {found.launches} launches"
        )
        ratio, low, high = map(math.exp, (part.point, part.low, part.high))
        return RatioInterval(ratio, low, high, name, found.prompts, method, confidence)

    return Estimate(
        ratio=named(main, main.ratio, estimator),
        tau=named(main, main.tau, estimator),
        step=named(main, main.step, estimator),
        mean_throughput_ratio=named(plain, plain.ratio, "mean_throughput"),
        accept_length=lengths,
        launch=main.spread,
        notes=tuple(step_claims(recording)) + ((remembered,) if remembered else ()),
    )


def aa_calibration(
    recordings: Sequence[Recording],
    estimator: str = "quiet_time",
    *,
    arms: tuple[str, str] | None = None,
    baseline_name: str | None = None,
    seed: int = 0,
) -> Calibration:
    """Stock against itself over at least three launches.

    Args:
        arms: (numerator, denominator); default: the two arms whose trees are equal.

    Raises:
        MeasurementError: fewer than three launches, or no two arms of one tree.
    """
    recording = _merged(recordings)
    launches = len({run.launch for run in recording.runs})
    if launches < 3:
        raise MeasurementError(
            f"the A/A placebo has {launches} launches; three are the least",
            "Raise measurement.launches_aa.",
        )
    top, bottom = arms or _placebo_arms(recording.trees)
    result = estimate(recording, top, bottom, estimator, baseline_name=baseline_name, seed=seed)
    return Calibration(result.ratio, max(result.ratio.high, 1.0), result.launch)


def aa_floor(
    recordings: Sequence[Recording],
    estimator: str = "quiet_time",
    *,
    arms: tuple[str, str] | None = None,
    baseline_name: str | None = None,
) -> tuple[RatioInterval, float]:
    """`aa_calibration` as (interval, floor)."""
    found = aa_calibration(recordings, estimator, arms=arms, baseline_name=baseline_name)
    return found.interval, found.floor


def _merged(recordings: Recording | Sequence[Recording]) -> Recording:
    return recordings if isinstance(recordings, Recording) else merge_launches(recordings)


def _placebo_arms(trees: Mapping[str, str]) -> tuple[str, str]:
    for bottom in trees:
        for top in trees:
            if top != bottom and trees[top] == trees[bottom]:
                return (bottom, top) if top == "stock" else (top, bottom)
    raise MeasurementError(
        f"no two arms of the A/A placebo are the same tree (arms: {', '.join(trees) or 'none'})",
        "Launch the stock tree twice.",
    )
