"""Measured time against the limit of the memory, component by component."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from farm.cost_model.traffic import Traffic


@dataclass(frozen=True)
class Limits:
    """What the device does at most: bytes a second of a read-only stream, FLOPs a second. `origin`
    says whether that was measured or is a datasheet's."""

    bytes_per_s: float
    flops_per_s: float
    origin: str

    def ms(self, traffic: Traffic) -> float:
        """Least milliseconds of a component."""
        seconds = max(traffic.bytes / self.bytes_per_s, traffic.flops / self.flops_per_s)
        return 1e3 * seconds


@dataclass(frozen=True)
class Gap:
    """One component of a step; `measured_ms` is None where nothing was measured."""

    component: str
    bytes: float
    limit_ms: float
    measured_ms: float | None

    @property
    def gap_ms(self) -> float | None:
        """What reaching the limit would save a step; 0 where noise measured less than it."""
        return None if self.measured_ms is None else max(0.0, self.measured_ms - self.limit_ms)


@dataclass(frozen=True)
class CostModel:
    """Gaps of one step, the largest first (without a measurement: the largest limit first)."""

    gaps: tuple[Gap, ...]
    limits: Limits

    @property
    def limit_ms(self) -> float:
        return sum(gap.limit_ms for gap in self.gaps)

    @property
    def measured_ms(self) -> float | None:
        times = [gap.measured_ms for gap in self.gaps if gap.measured_ms is not None]
        return sum(times) if times else None

    def share(self, gap: Gap) -> float | None:
        """Of the step's time."""
        total = self.measured_ms
        return None if total is None or gap.measured_ms is None else gap.measured_ms / total

    def speed_up(self, gap: Gap) -> float | None:
        """Bound on the step's speed-up if this component alone reached its limit."""
        total = self.measured_ms
        return None if total is None or gap.gap_ms is None else total / (total - gap.gap_ms)


def cost_model(
    traffic: Sequence[Traffic], limits: Limits, measured: Mapping[str, float] | None = None
) -> CostModel:
    """`measured`: milliseconds by component; what is measured and reads nothing (host, RoPE) has a
    limit of 0."""
    times = dict(measured or {})
    known = {item.component: item for item in traffic}
    names = [*known, *(name for name in times if name not in known)]
    gaps = [
        Gap(
            name,
            known[name].bytes if name in known else 0.0,
            limits.ms(known[name]) if name in known else 0.0,
            times.get(name),
        )
        for name in names
    ]
    gaps.sort(key=lambda gap: -(gap.limit_ms if gap.gap_ms is None else gap.gap_ms))
    return CostModel(tuple(gaps), limits)
