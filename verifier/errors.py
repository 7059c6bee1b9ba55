"""Errors of the verifier itself. A candidate's faults are judgements, never errors here."""

from __future__ import annotations

from settings.errors import SpecfarmError


class VerifierError(SpecfarmError):
    """Base: the verifier cannot judge (in the farm: `invalid_environment`)."""


class ForcingError(VerifierError):
    """The stock engine that forces answered something that cannot be scored."""


class CalibrationError(VerifierError):
    """The A/A calibration is missing, too small, or shows that stock contradicts itself."""


class OutputsError(VerifierError):
    """A file of outputs cannot be read; names the line and the field."""
