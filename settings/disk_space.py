"""Room on a file system, asked before a download rather than found missing in the middle of it."""

from __future__ import annotations

import shutil
from pathlib import Path

from settings.errors import ProvisionError

SPARE_BYTES = 1_000_000_000
"""What a download must leave free."""


def missing_bytes(needed: int, folder: Path) -> int:
    """How much too little is free where `folder` lies, for `needed` bytes more; 0 if enough."""
    return max(0, needed + SPARE_BYTES - shutil.disk_usage(folder).free)


def check_room(what: str, needed: int, folder: Path) -> None:
    """Raise ProvisionError unless `needed` bytes fit beside what is in `folder`."""
    missing = missing_bytes(needed, folder)
    if missing:
        raise ProvisionError(
            f"{what} needs {gigabytes(needed)} in {folder}, {gigabytes(missing)} more than is free "
            f"with {gigabytes(SPARE_BYTES)} to spare",
            "Free some, or set SPECFARM_DATA to a folder on a larger disk",
        )


def gigabytes(count: int) -> str:
    """`55.6 GB` (1e9 bytes)."""
    return f"{count / 1e9:.1f} GB"
