"""Why an engine cannot be exported, promoted or trusted."""

from __future__ import annotations

from settings.errors import SpecfarmError


class PromotionError(SpecfarmError):
    """The candidate, the folder or the certificate does not allow it."""
