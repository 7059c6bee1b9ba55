"""farm.bench's estimators behind the flow's `Statistics` protocol."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from farm.bench.estimate import aa_calibration, estimate
from farm.bench.recording import Recording, recording_from_json
from farm.campaign.context import Measured
from farm.results import RatioInterval
from farm.statistics.launch_spread import UNKNOWN, LaunchSpread
from farm.statistics.student_t import t_quantile


class BenchStatistics:
    """One setting's estimator. Remembers the launch-to-launch spread the A/A placebo showed, which
    then enters every later interval (a resumed campaign replays the placebo first)."""

    def __init__(self, estimator: str) -> None:
        self._estimator = estimator
        self._launch: LaunchSpread = UNKNOWN

    def estimate(
        self,
        recordings: Sequence[Mapping[str, Any]],
        numerator: str,
        denominator: str,
        baseline: str,
        confidence: float = 0.95,
    ) -> Measured:
        found = estimate(
            _parsed(recordings),
            numerator,
            denominator,
            self._estimator,
            baseline_name=baseline,
            launch=self._launch,
            confidence=confidence,
        )
        return Measured(
            ratio=found.ratio,
            tau_ratio=found.tau_ratio,
            step_ratio=found.step_ratio,
            mean_throughput_ratio=found.mean_throughput_ratio.ratio,
            accept_length=found.accept_length,
            tau=found.tau,
            step=found.step,
        )

    def aa_floor(
        self, recordings: Sequence[Mapping[str, Any]], baseline: str
    ) -> tuple[RatioInterval, float]:
        found = aa_calibration(
            _parsed(recordings), self._estimator, arms=("stock_b", "stock"), baseline_name=baseline
        )
        self._launch = found.launch
        return found.interval, found.floor

    def least_acceptable(self, floor: float) -> float:
        """The ratio a one-launch measurement must exceed to have its lower bound above `floor`
        even if its prompts agreed to the last digit: the launch part of the half-width."""
        if not self._launch.df:
            return floor
        return floor * math.exp(t_quantile(0.975, self._launch.df) * self._launch.sd)

    def answers(self, recordings: Sequence[Mapping[str, Any]], arm: str) -> list[dict[str, Any]]:
        """Timed answers as JSON, without their arrivals (the verifier needs none)."""
        found = []
        for recording in _parsed(recordings):
            for answer in recording.answers(arm):
                found.append(asdict(answer) | {"arrivals": (), "meta": {}})
        return found


def _parsed(recordings: Sequence[Mapping[str, Any]]) -> list[Recording]:
    return [recording_from_json(recording) for recording in recordings]
