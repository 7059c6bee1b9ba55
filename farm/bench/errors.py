"""Errors of measuring."""

from __future__ import annotations

from settings.errors import SpecfarmError


class MeasurementError(SpecfarmError):
    """A measurement cannot be planned, run, read or estimated; names the field and the remedy."""
