"""Which files of a folder are engine source: all but byte code, tool caches and build outputs."""

from __future__ import annotations

import os
from pathlib import Path

from engines.errors import TreeRefused

_SKIPPED = frozenset(
    {
        "__pycache__",
        ".git",
        ".mypy_cache",
        ".pytest_cache",
        ".ruff_cache",
        ".venv",
        "build",
        "dist",
    }
)
_SKIPPED_ENDINGS = (".pyc", ".egg-info", "_build", "~")


def source_files(folder: Path) -> dict[str, tuple[str, bytes]]:
    """{path relative to `folder`: (git mode, bytes)}; a link's bytes are its target.

    Raises:
        TreeRefused: the folder is missing or empty, or holds a socket, device or pipe.
    """
    found: dict[str, tuple[str, bytes]] = {}
    for where, folders, files in os.walk(folder):
        here = Path(where)
        links = [name for name in folders if (here / name).is_symlink()]
        folders[:] = sorted(n for n in folders if n not in links and not _skipped(n))
        for name in sorted(files + links):
            path = here / name
            if _skipped(name):
                continue
            relative = path.relative_to(folder).as_posix()
            if path.is_symlink():
                found[relative] = ("120000", os.fsencode(path.readlink()))
            elif path.is_file():
                executable = path.stat().st_mode & 0o100
                found[relative] = ("100755" if executable else "100644", path.read_bytes())
            else:
                raise TreeRefused(f"{relative} is neither a file nor a link")
    if not found:
        raise TreeRefused(f"no engine source in {folder}", "Name the folder that holds the tree")
    return found


def _skipped(name: str) -> bool:
    return name in _SKIPPED or name.endswith(_SKIPPED_ENDINGS)
