"""Errors of data generation and training: each says what is wrong and what to do (exit code 2)."""

from __future__ import annotations

from settings.errors import SpecfarmError


class TrainingError(SpecfarmError):
    """A file, folder or option of `python -m engines.training` cannot be used."""
