"""Where specfarm keeps what must outlive a run: one data folder, never the checkout.

`$SPECFARM_DATA` (default `~/specfarm_data`):
    shared/  environments, checkpoints, prompt files, kernel caches (safe to delete, made again)
    work/    tree store, worktrees, logs, bench results, ledger, campaigns, promoted engines
"""

from __future__ import annotations

import os
from pathlib import Path


def data_root() -> Path:
    """The data folder (created)."""
    root = Path(os.environ.get("SPECFARM_DATA") or Path.home() / "specfarm_data")
    root.mkdir(parents=True, exist_ok=True)
    return root.resolve()


def shared_dir(*parts: str) -> Path:
    """A folder below `shared/` (created)."""
    path = data_root().joinpath("shared", *parts)
    path.mkdir(parents=True, exist_ok=True)
    return path


def work_dir(*parts: str) -> Path:
    """A folder below `work/` (created)."""
    path = data_root().joinpath("work", *parts)
    path.mkdir(parents=True, exist_ok=True)
    return path


def checkout_root() -> Path:
    """The checkout (or installed copy) this code runs from."""
    return Path(__file__).resolve().parent.parent
