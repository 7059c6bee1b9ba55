"""Make a file or folder of the data folder once: locked between processes, atomic, idempotent."""

from __future__ import annotations

import fcntl
import glob
import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

Progress = Callable[[str], None]
"""Receives one line of progress; `logging`'s `Logger.info` fits."""


def sha256_of(path: Path) -> str:
    """Hex digest of a file's content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def file_lock(target: Path) -> Iterator[None]:
    """Hold `.<name>.lock` beside `target` exclusively; released when the process ends."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with (target.parent / f".{target.name}.lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def provide_folder(
    target: Path, complete: Callable[[Path], bool], make: Callable[[Path], None]
) -> Path:
    """Return `target`, made by `make(empty temporary folder)` unless `complete(target)`.

    The folder appears under its name only when `make` has returned, so a killed run leaves no
    half-made one; of several processes one makes it and the others wait.
    """
    if complete(target):
        return target
    with file_lock(target):
        if complete(target):
            return target
        # The lock is ours, so these were left by a run that was killed.
        for stale in target.parent.glob(f".{glob.escape(target.name)}-*"):
            shutil.rmtree(stale, ignore_errors=True)
        temporary = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
        try:
            make(temporary)
            temporary.chmod(0o755)
            for file in temporary.rglob("*"):
                file.chmod(0o755 if file.is_dir() else 0o644)
            if target.exists():
                shutil.rmtree(target)
            temporary.replace(target)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
    return target


def provide_file(target: Path, make: Callable[[Path], None]) -> Path:
    """Return `target`, made by `make(temporary path in the same folder)` unless it exists."""
    if target.is_file():
        return target
    with file_lock(target):
        if not target.is_file():
            temporary = target.with_name(f".{target.name}.{os.getpid()}")
            try:
                make(temporary)
                temporary.replace(target)
            finally:
                temporary.unlink(missing_ok=True)
    return target
