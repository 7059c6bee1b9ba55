"""The sandbox asked for cannot be had: the environment's fault, never a candidate's."""

from __future__ import annotations

from settings.errors import SpecfarmError


class SandboxUnavailable(SpecfarmError):
    """`SPECFARM_SANDBOX` names no level, or one that does not work on this machine."""
