"""Where specfarm keeps what must outlive a run: one data folder, never the checkout.

`$SPECFARM_DATA` (default `~/specfarm_data`):
    shared/  environments, checkpoints, prompt files, kernel caches (safe to delete, made again)
    work/    tree store, worktrees, logs, bench results, ledger, campaigns, promoted engines
"""

from __future__ import annotations

import os
from pathlib import Path

from settings.errors import SpecfarmError


def data_root() -> Path:
    """The data folder (created)."""
    root = Path(os.environ.get("SPECFARM_DATA") or Path.home() / "specfarm_data")
    return _made(root).resolve()


def _made(path: Path) -> Path:
    """The folder, created.

    Raises:
        SpecfarmError: it cannot be.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SpecfarmError(
            f"the data folder {path} cannot be made: {error.strerror}",
            "Set SPECFARM_DATA to a folder that can be written",
        ) from None
    return path


def shared_dir(*parts: str) -> Path:
    """A folder below `shared/` (created)."""
    return _made(data_root().joinpath("shared", *parts))


def work_dir(*parts: str) -> Path:
    """A folder below `work/` (created)."""
    return _made(data_root().joinpath("work", *parts))


def checkout_root() -> Path:
    """The checkout (or installed copy) this code runs from."""
    return Path(__file__).resolve().parent.parent
