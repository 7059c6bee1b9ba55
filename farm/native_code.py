"""The native engine's own descriptions of models, importable here."""

from __future__ import annotations

import sys

from settings.paths import checkout_root


def make_importable() -> None:
    """Puts `engines/native` on the import path: its loaders know every tensor of a model."""
    engine = str(checkout_root() / "engines" / "native")
    if engine not in sys.path:
        sys.path.append(engine)
