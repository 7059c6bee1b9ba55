"""A promoted engine on disk: the stock bundle, the patch series on it, the lock, the certificate.

engine.lock        TOML: stock_tree, stock_commit, final_tree, final_commit (40 hex each)
stock.bundle       git bundle of the stock commit
patches/NNNN-*.patch   one a commit, in order; each applies with `git apply`
certificate.json   status, hardware and the evidence (written by the farm)
"""

from __future__ import annotations

import hashlib
import json
import re
import tomllib
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from engines.errors import EngineError
from engines.tree_store import Tree, TreeStore

RESTORE = "The folder was changed after promotion; restore it or promote again"


@dataclass(frozen=True)
class EngineLock:
    stock_tree: str
    stock_commit: str
    final_tree: str
    final_commit: str


def read_lock(folder: Path) -> EngineLock:
    """engine.lock of a final folder; EngineError names the field that is wrong."""
    path = folder / "engine.lock"
    try:
        data = tomllib.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise EngineError(f"{path} cannot be read: {error}", "Promote the engine again") from None
    for field in fields(EngineLock):
        value = data.get(field.name)
        if not isinstance(value, str) or not re.fullmatch(r"[0-9a-f]{40}", value):
            raise EngineError(f"{path}: {field.name} = {value!r} is not a 40-hex hash")
    return EngineLock(**{field.name: data[field.name] for field in fields(EngineLock)})


def read_certificate(folder: Path) -> dict[str, Any]:
    """certificate.json of a final folder; it must state `status` and `hardware`."""
    path = folder / "certificate.json"
    try:
        data = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise EngineError(f"{path} cannot be read: {error}", "Run specfarm certify") from None
    for key in ("status", "hardware"):
        if not isinstance(data, dict) or not isinstance(data.get(key), str):
            raise EngineError(f"{path}: {key} is missing", "Run specfarm certify")
    return dict(data)


def rebuild_final(folder: Path, store: TreeStore) -> Tree:
    """Unbundle stock, apply the series, compare every hash with the lock.

    Raises:
        EngineError: names the lock's field that does not match.
        PatchConflict, TreeRefused: a patch of the series does not apply or is forbidden.
    """
    lock = read_lock(folder)
    try:
        bundle = (folder / "stock.bundle").read_bytes()
    except OSError as error:
        raise EngineError(f"{folder}: stock.bundle cannot be read: {error}") from None
    if lock.stock_commit not in store.import_bundle(bundle):
        raise EngineError(f"{folder}: stock.bundle does not hold stock_commit {lock.stock_commit}")
    tree = store.tree(lock.stock_commit)
    _compare(folder, "stock_tree", lock.stock_tree, tree.tree_hash)
    for path in sorted((folder / "patches").glob("*.patch")):
        patch = path.read_bytes().decode("utf-8", "surrogateescape")
        lines = patch.split("\n")
        header = [line[2:] for line in lines if line.startswith("# ")] or [path.stem]
        tree = store.commit_patch(tree.commit, patch, "\n".join(header))
    _compare(folder, "final_tree", lock.final_tree, tree.tree_hash)
    return tree


def check_files(folder: Path, certificate: dict[str, Any]) -> None:
    """Every file whose hash the certificate records is as it was, RESULT.md (prose) apart.

    Raises:
        EngineError: names the file that changed or is missing.
    """
    hashes = certificate.get("hashes")
    files = hashes.get("files") if isinstance(hashes, dict) else None
    for name, wanted in sorted(files.items()) if isinstance(files, dict) else ():
        if name.endswith(".md"):
            continue
        path = folder / name
        try:
            found = hashlib.sha256(path.read_bytes()).hexdigest()
        except OSError as error:
            raise EngineError(f"{path} cannot be read: {error.strerror}", RESTORE) from None
        if found != wanted:
            raise EngineError(f"{path}: sha256 differs from certificate.json's", RESTORE)


def _compare(folder: Path, field: str, expected: str, found: str) -> None:
    if expected != found:
        raise EngineError(
            f"{folder / 'engine.lock'}: {field} is {expected}, the files give {found}",
            RESTORE,
        )
