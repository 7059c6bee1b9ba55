"""Sequential early stop: clear losers soon, clear winners only once the plan's minimum is in.

Looking many times inflates the chance of a false "faster", so a winner is stopped on a 99.5 %
interval; a loser costs nothing when it is dropped wrongly but a missed gain, and is stopped on the
95 % interval.
"""

from __future__ import annotations

from dataclasses import dataclass

from farm.bench.errors import MeasurementError
from farm.bench.estimate import estimate
from farm.bench.plan import ENOUGH_PROMPTS, FEWEST_PROMPTS
from farm.bench.recording import Recording
from farm.results import RatioInterval
from farm.statistics.launch_spread import UNKNOWN, LaunchSpread

LOSER = "clear loser"
WINNER = "clear winner"


@dataclass(frozen=True)
class SequentialStop:
    """A `StopRule`: called after every prompt, says why to stop or None.

    `floor` is the A/A floor a winner must exceed. With `winners` off only losers are stopped.
    """

    numerator: str = "candidate"
    denominator: str = "stock"
    estimator: str = "quiet_time"
    floor: float = 1.0
    launch: LaunchSpread = UNKNOWN
    fewest_prompts: int = FEWEST_PROMPTS
    enough_prompts: int = ENOUGH_PROMPTS
    winners: bool = True

    def __call__(self, recording: Recording) -> str | None:
        done = {run.request for run in recording.runs if run.arm == self.numerator}
        if len(done) < self.fewest_prompts:
            return None
        try:
            ratio = self._ratio(recording, 0.95)
            if ratio.high < 1.0:
                return f"{LOSER}: x{ratio.ratio:.3f}, upper bound {ratio.high:.3f} below 1"
            if not self.winners or len(done) < self.enough_prompts:
                return None
            strict = self._ratio(recording, 0.995)
        except MeasurementError:
            return None
        if strict.low > self.floor:
            return f"{WINNER}: x{strict.ratio:.3f}, lower 99.5 % bound {strict.low:.3f}"
        return None

    def _ratio(self, recording: Recording, confidence: float) -> RatioInterval:
        return estimate(
            recording,
            self.numerator,
            self.denominator,
            self.estimator,
            launch=self.launch,
            confidence=confidence,
        ).ratio
