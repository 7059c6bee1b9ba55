"""Errors of building, launching and talking to engines. Each becomes a verdict in the farm."""

from __future__ import annotations

from settings.errors import SpecfarmError


class EngineError(SpecfarmError):
    """Base: something is wrong with an engine or its tree. `arm` labels the arm whose request
    failed, where several were being asked at once; `status` is the HTTP status (or the code of an
    error object) with which a server refused."""

    arm: str | None = None
    status: int | None = None


class EngineCrashed(EngineError):
    """The process ended (at start or in mid-flight); carries the end of its log."""


class EngineTimeout(EngineError):
    """Start-up, a request or a stop passed its deadline."""


class EngineProtocolError(EngineError):
    """The server answered, but not what the HTTP contract says (malformed JSON, missing fields,
    ids out of range, wrong counts)."""


class BadRequest(EngineError):
    """The server refused a request with 4xx; carries its message."""


class TreeRefused(EngineError):
    """A candidate's change leaves its tree, is too large, or sets what it may not set."""


class PatchConflict(EngineError):
    """A patch does not apply to the tree it was offered to."""
