"""Did a change take effect at all? Knobs read back from the server, counters that cannot be noise.

A candidate that "does nothing for speed" may simply never have run its change: that is another
finding, and worth knowing before a mechanism is written off.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

_COUNTERS = ("steps", "rows", "drafted", "committed")


@dataclass(frozen=True)
class Engagement:
    """`engaged`: yes, no or cannot tell; `signs` are what was seen, in words."""

    engaged: Literal["yes", "no", "cannot tell"]
    reason: str
    signs: tuple[str, ...] = field(default=())

    def to_json(self) -> dict[str, Any]:
        return {"engaged": self.engaged, "reason": self.reason, "signs": list(self.signs)}


def engagement(
    knobs: Mapping[str, object],
    candidate: Mapping[str, Any],
    stock: Mapping[str, Any],
    tau_ratio: float | None = None,
    speed: tuple[float, float] | None = None,
) -> Engagement:
    """What two /server_info answers and the measurement say of a change.

    Args:
        knobs: dotted keys of engine.toml that the change sets, empty for a source patch.
        candidate, stock: /server_info of both after the same last prompt.
        tau_ratio: accept length over stock's: counted, so any difference is the engine's doing.
        speed: the interval of the speed ratio.

    `no` needs a knob that the server reports with another value than the one set.
    """
    served, before = _flat(candidate.get("engine_config")), _flat(stock.get("engine_config"))
    unheard = [key for key in knobs if key in served and served[key] != knobs[key]]
    if unheard:
        shown = ", ".join(f"{key} is {served[key]!r}, set was {knobs[key]!r}" for key in unheard)
        return Engagement("no", f"the server reports otherwise: {shown}")
    signs = [f"{key}: {before.get(key)!r} -> {served[key]!r}" for key in _changed(served, before)]
    signs += _counted(candidate.get("component_times"), stock.get("component_times"))
    if tau_ratio is not None and abs(tau_ratio - 1.0) > 1e-9:
        signs.append(f"accept length x{tau_ratio:.3f} of stock's")
    if speed is not None and not speed[0] <= 1.0 <= speed[1]:
        signs.append(f"speed outside noise: [{speed[0]:.3f}, {speed[1]:.3f}]")
    if signs:
        return Engagement("yes", signs[0], tuple(signs))
    return Engagement(
        "cannot tell", "same knobs, same counters, and no difference in speed beyond noise"
    )


def _flat(table: object, prefix: str = "") -> dict[str, object]:
    return dict(_entries(table, prefix))


def _entries(table: object, prefix: str) -> Iterator[tuple[str, object]]:
    if isinstance(table, Mapping):
        for key, value in table.items():
            if isinstance(value, Mapping):
                yield from _entries(value, f"{prefix}{key}.")
            else:
                yield f"{prefix}{key}", value


def _changed(served: Mapping[str, object], before: Mapping[str, object]) -> list[str]:
    return [key for key in served if served[key] != before.get(key)]


def _counted(candidate: object, stock: object) -> list[str]:
    """Counters per verify step of the same last prompt; times are noise and are not compared."""
    if not (isinstance(candidate, Mapping) and isinstance(stock, Mapping)):
        return []
    pairs = [(name, candidate.get(name), stock.get(name)) for name in _COUNTERS]
    return [
        f"{name}: {ours} for stock's {theirs}" for name, ours, theirs in pairs if ours != theirs
    ]
