"""Errors of the engine: each names the field or file and says what would be right."""

from __future__ import annotations


class NativeEngineError(Exception):
    """Base of the engine's own errors."""


class ConfigError(NativeEngineError):
    """config.json, engine.toml or the command line asks for something unknown or unsupported."""


class WeightsError(NativeEngineError):
    """A checkpoint lacks a tensor, or one has another shape than config.json says."""


class BadRequest(NativeEngineError):
    """A request that cannot be served; `field` names the offending part (HTTP 400)."""

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field}: {problem}")
        self.field = field


class QueueFull(NativeEngineError):
    """The waiting queue is at its limit (HTTP 503); retry later."""


class DeviceFull(QueueFull):
    """The device had no memory left for a request's step (HTTP 503); retry later."""


class TooManyRequests(NativeEngineError):
    """One call asks for more at once than may ever run and wait (HTTP 429)."""


class NotFinite(NativeEngineError):
    """A row of logits has no finite maximum: no token may be chosen from it."""


class StateError(NativeEngineError):
    """A cache slot was asked for tokens it does not hold, or for more than fit."""

    def __init__(self, slot: int, problem: str) -> None:
        super().__init__(f"slot {slot}: {problem}")
