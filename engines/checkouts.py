"""Plain read-only exports of trees, named by tree hash and checked file by file.

Files are written from git's objects byte for byte: no attribute, filter or line-ending rule of
the tree has a say.
"""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from pathlib import Path

from engines.errors import EngineError
from engines.git_plumbing import BareRepository
from engines.tree_hash import folder_tree_hash


def verify_checkout(path: Path) -> str:
    """The tree hash of a folder recomputed from its files."""
    return folder_tree_hash(path)


def export_tree(repo: BareRepository, tree_hash: str, checkouts: Path) -> Path:
    """`<checkouts>/<tree hash>`, reused only while its files still hash to the tree. The caller
    holds the store's lock."""
    target = checkouts / tree_hash
    if target.is_dir() and verify_checkout(target) == tree_hash:
        return target
    fresh = Path(tempfile.mkdtemp(prefix="tmp-", dir=checkouts))
    try:
        _write(repo, tree_hash, fresh)
        found = verify_checkout(fresh)
        if found != tree_hash:
            raise EngineError(f"checkout of {tree_hash} hashes to {found}")
        _set_writable(fresh, False)
        remove_folder(target)
        fresh.rename(target)
    except BaseException:
        remove_folder(fresh)
        raise
    return target


def remove_folder(path: Path) -> None:
    """Remove a read-only export (or a stray file); nothing there is fine."""
    if path.is_symlink() or path.is_file():
        path.unlink()
    elif path.is_dir():
        _set_writable(path, True)
        shutil.rmtree(path)


def _write(repo: BareRepository, tree_hash: str, folder: Path) -> None:
    entries = repo.entries(tree_hash)
    contents = repo.blobs(entry.oid for entry in entries)
    # Links last: no file is ever written through one.
    rows = sorted(zip(entries, contents, strict=True), key=lambda row: row[0].mode == "120000")
    for entry, content in rows:
        file = folder / entry.path
        file.parent.mkdir(parents=True, exist_ok=True)
        if entry.mode == "120000":
            file.symlink_to(os.fsdecode(content))
        else:
            file.write_bytes(content)
            file.chmod(0o755 if entry.mode == "100755" else 0o644)


def _set_writable(folder: Path, writable: bool) -> None:
    folder.chmod(0o755)
    for path in folder.rglob("*"):
        if not path.is_symlink():
            mode = path.stat().st_mode
            path.chmod(mode | stat.S_IWUSR if writable else mode & ~0o222)
    folder.chmod(0o755 if writable else 0o555)
