"""Put a folder or a file in another's place: a reader sees the old one or the new one, whole.

Linux exchanges two names in one step (`renameat2` with RENAME_EXCHANGE). Where the file system
cannot, the old folder is moved aside first and moved back by the next call if the process died in
between.
"""

from __future__ import annotations

import ctypes
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_AT_FDCWD, _RENAME_EXCHANGE = -100, 2


def _exchange(one: Path, other: Path) -> bool:
    try:
        rename = ctypes.CDLL(None, use_errno=True).renameat2
    except AttributeError:
        return False
    names = os.fsencode(one), os.fsencode(other)
    return bool(rename(_AT_FDCWD, names[0], _AT_FDCWD, names[1], _RENAME_EXCHANGE) == 0)


def _aside(target: Path) -> Path:
    return target.with_name(f".{target.name}.old")


def recover(target: Path) -> None:
    """Puts the old folder back where a killed replacement left none; safe for readers."""
    if not target.exists() and _aside(target).exists():
        _aside(target).rename(target)


def _clear(target: Path) -> None:
    recover(target)
    for leftover in [_aside(target), *target.parent.glob(f".{target.name}.new-*")]:
        if leftover.exists():
            shutil.rmtree(leftover)


def _sync(folder: Path) -> None:
    for path in [*folder.rglob("*"), folder]:
        _sync_one(path)


@contextmanager
def replaced_folder(target: Path) -> Iterator[Path]:
    """A new empty folder to fill; it takes `target`'s place when the block ends without an error.

    One writer at a time. Until the end `target` stays as it was; after an error or a kill it still
    is, and the next call clears what was left beside it.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    _clear(target)
    fresh = target.with_name(f".{target.name}.new-{os.getpid()}")
    fresh.mkdir()
    try:
        yield fresh
        _sync(fresh)
    except BaseException:
        shutil.rmtree(fresh)
        raise
    if not target.exists():
        fresh.rename(target)
    elif _exchange(fresh, target):
        shutil.rmtree(fresh)
    else:
        target.rename(_aside(target))
        fresh.rename(target)
        shutil.rmtree(_aside(target))


def replaced_file(target: Path, content: bytes) -> None:
    """Writes a file so that a reader sees the old one or the new one, and a crash leaves one.

    The new file grows beside the target's folder, not in it: a folder whose every file is listed
    somewhere never holds a stray one. One writer at a time.
    """
    folder = target.parent
    for leftover in folder.parent.glob(f".{folder.name}-{target.name}-*"):
        leftover.unlink()
    fresh = folder.with_name(f".{folder.name}-{target.name}-{os.getpid()}")
    with fresh.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(target)
    _sync_one(folder)


def _sync_one(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
