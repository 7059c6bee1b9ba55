"""The git tree hash of a folder, from its files alone (no repository, no index, no filters).

Format: git's tree objects, `<mode> <name>\\0<20 raw bytes>` sorted with `/` after folder names.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path


def _object_hash(kind: bytes, body: bytes) -> bytes:
    return hashlib.sha1(kind + b" %d\0" % len(body) + body, usedforsecurity=False).digest()


def _tree(folder: bytes) -> bytes | None:
    rows: list[tuple[bytes, bytes]] = []
    for entry in os.scandir(folder):
        name = entry.name
        if entry.is_symlink():
            target = os.fsencode(Path(os.fsdecode(entry.path)).readlink())
            mode, digest = b"120000", _object_hash(b"blob", target)
            rows.append((name, mode + b" " + name + b"\0" + digest))
        elif entry.is_dir():
            subtree = _tree(entry.path)
            if subtree is not None:
                rows.append((name + b"/", b"40000 " + name + b"\0" + subtree))
        else:
            mode = b"100755" if entry.stat().st_mode & 0o100 else b"100644"
            digest = _object_hash(b"blob", Path(os.fsdecode(entry.path)).read_bytes())
            rows.append((name, mode + b" " + name + b"\0" + digest))
    if not rows:
        return None
    return _object_hash(b"tree", b"".join(row for _, row in sorted(rows)))


def folder_tree_hash(folder: Path) -> str:
    """40-hex git tree hash of everything below `folder`; empty folders do not count."""
    digest = _tree(os.fsencode(folder))
    return (digest or _object_hash(b"tree", b"")).hex()
