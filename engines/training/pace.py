"""How many steps there are, and the learning rate of each: fixed by number, or by minutes."""

from __future__ import annotations

import math
from dataclasses import dataclass

from engines.training.options import TrainOptions

SETTLING, MEASURED = 10, 30
"""Steps before the rate is measured, and steps it is measured over."""
_PROVISIONAL = 8000
_LATE = 1.02


@dataclass
class Pace:
    """`total` steps; None until the rate is known. `planned_late`: how often they were cut since,
    because others used the device too."""

    options: TrainOptions
    total: int | None = None
    planned_late: int = 0

    @classmethod
    def of(cls, options: TrainOptions) -> Pace:
        return cls(options, options.steps or None)

    @property
    def measures(self) -> bool:
        return self.total is None

    def fix(self, step: int, seconds_a_step: float, spent_s: float) -> None:
        """After `step` steps and `spent_s` seconds: as many more as the minutes leave room for."""
        left = self.options.minutes * 60 - spent_s
        self.total = step + max(1, int(left / seconds_a_step))

    def keep(self, step: int, seconds_a_step: float, spent_s: float) -> None:
        """Cut what would end late (by minutes only; a number of steps is kept)."""
        if self.options.steps or self.total is None or step >= self.total:
            return
        ends = spent_s + (self.total - step) * seconds_a_step
        if ends > self.options.minutes * 60 * _LATE:
            self.fix(step, seconds_a_step, spent_s)
            self.planned_late += 1

    def done(self, step: int) -> bool:
        return self.total is not None and step >= self.total

    def lr(self, step: int) -> float:
        """Linear warm-up, then a cosine down to `min_lr` of the largest."""
        total = self.total or _PROVISIONAL
        warm = max(1, round(self.options.warmup * total))
        if step < warm:
            return self.options.lr * (step + 1) / warm
        share = min(1.0, (step - warm) / max(1, total - warm))
        least = self.options.min_lr
        return self.options.lr * (least + (1 - least) * 0.5 * (1 + math.cos(math.pi * share)))
