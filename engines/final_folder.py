"""A promoted engine on disk: the stock bundle, the patch series on it, the lock, the certificate.

engine.lock            TOML: setting, engine, harness, and the hashes of stock and final
stock.bundle           git bundle of the stock commit
patches/NNNN-*.patch   one a commit, in order; each applies with `git apply`
RESULT.md              the campaign in prose
certificate.json       status, hardware and the evidence (engines.certificate)
certification.json     the last re-run of the certificate, where there was one
"""

from __future__ import annotations

import json
import re
import tomllib
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from engines.errors import EngineError
from engines.tree_store import Tree, TreeStore

LOCK, BUNDLE, RESULT = "engine.lock", "stock.bundle", "RESULT.md"
RESTORE = "The folder was changed after promotion; restore it or promote again"
_HEAD = "# Written by a search; the certificate beside it says why. Do not edit.\n"
_HASHES = ("stock_tree", "stock_commit", "final_tree", "final_commit")


@dataclass(frozen=True)
class EngineLock:
    """`stock.bundle` holds `stock_commit` (tree `stock_tree`); the patches in order lead to
    `final_tree`. Tree and commit hashes are git's 40 hex digits, `harness` is a sha256 of the code
    that judged; `created` is UTC, ISO 8601."""

    setting: str
    engine: str
    stock_tree: str
    stock_commit: str
    final_tree: str
    final_commit: str
    harness: str
    created: str
    schema_version: int = 1

    def to_toml(self) -> str:
        # A JSON string or integer is a valid TOML one.
        return _HEAD + "".join(f"{k} = {json.dumps(v)}\n" for k, v in asdict(self).items())


def read_lock(folder: Path) -> EngineLock:
    """engine.lock of a final folder.

    Raises:
        EngineError: no such file, not TOML, or a key is missing, unknown or malformed (named).
    """
    path = folder / LOCK
    try:
        data = tomllib.loads(path.read_text())
    except FileNotFoundError:
        raise EngineError(
            f"{folder} holds no {LOCK}", "Run a search, or promote a campaign, first"
        ) from None
    except (OSError, ValueError) as error:
        raise EngineError(f"{path} cannot be read: {error}", RESTORE) from None
    for field in fields(EngineLock):
        value = data.get(field.name)
        wanted: type = int if field.name == "schema_version" else str
        if not isinstance(value, wanted):
            raise EngineError(f"{path}: {field.name} is missing or no {wanted.__name__}", RESTORE)
        if field.name in _HASHES and not re.fullmatch(r"[0-9a-f]{40}", str(value)):
            raise EngineError(f"{path}: {field.name} = {value!r} is not a 40-hex hash", RESTORE)
    unknown = sorted(set(data) - {field.name for field in fields(EngineLock)})
    if unknown:
        raise EngineError(f"{path}: unknown key {unknown[0]}", RESTORE)
    return EngineLock(**data)


def patch_files(folder: Path) -> list[Path]:
    """The patch series in the order it is applied."""
    return sorted((folder / "patches").glob("*.patch"))


def rebuild_final(folder: Path, store: TreeStore) -> Tree:
    """Unbundle stock, apply the series, compare every hash with the lock.

    Raises:
        EngineError: names the lock's field that does not match.
        PatchConflict, TreeRefused: a patch of the series does not apply or is forbidden.
    """
    lock = read_lock(folder)
    try:
        bundle = (folder / BUNDLE).read_bytes()
    except OSError as error:
        raise EngineError(f"{folder}: {BUNDLE} cannot be read: {error}") from None
    if lock.stock_commit not in store.import_bundle(bundle):
        raise EngineError(f"{folder}: {BUNDLE} does not hold stock_commit {lock.stock_commit}")
    tree = store.tree(lock.stock_commit)
    _compare(folder, "stock_tree", lock.stock_tree, tree.tree_hash)
    for path in patch_files(folder):
        patch = path.read_bytes().decode("utf-8", "surrogateescape")
        lines = patch.split("\n")
        header = [line[2:] for line in lines if line.startswith("# ")] or [path.stem]
        tree = store.commit_patch(tree.commit, patch, "\n".join(header))
    _compare(folder, "final_tree", lock.final_tree, tree.tree_hash)
    return tree


def _compare(folder: Path, field: str, expected: str, found: str) -> None:
    if expected != found:
        raise EngineError(
            f"{folder / LOCK}: {field} is {expected}, the files give {found}", RESTORE
        )
