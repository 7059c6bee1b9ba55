"""The identity of what judges: a hash over the code that measures, verifies and decides."""

from __future__ import annotations

import hashlib
from pathlib import Path

from settings.paths import checkout_root

_FOLDERS = ("farm", "verifier", "engines/sandbox")
_MODULES = ("settings", "engines")
_SKIPPED = {"__pycache__"}


def harness_files(root: Path) -> list[Path]:
    """Everything below farm/, verifier/ and engines/sandbox/, and the modules of settings/ and
    engines/, sorted."""
    files = [p for folder in _FOLDERS for p in (root / folder).rglob("*") if p.is_file()]
    files += [p for folder in _MODULES for p in (root / folder).glob("*.py")]
    kept = [p for p in files if not _SKIPPED & set(p.parts) and p.suffix != ".pyc"]
    return sorted(kept, key=lambda p: p.relative_to(root).as_posix())


def harness_hash(root: Path | None = None) -> str:
    """sha256 (hex) over path, length and content of each harness file of the checkout `root`."""
    base = checkout_root() if root is None else root
    digest = hashlib.sha256()
    for path in harness_files(base):
        data = path.read_bytes()
        digest.update(f"{path.relative_to(base).as_posix()}\0{len(data)}\0".encode())
        digest.update(data)
    return digest.hexdigest()
