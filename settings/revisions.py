"""Revisions that a setting leaves to be resolved: asked of the hub once, then kept.

`shared/resolved_revisions.json` of the data folder maps `<kind>:<repository>` to the commit that
the hub's default branch had at the first download; every later download takes that one. To move
on, delete the entry, or pin the revision in the setting.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from settings.errors import ProvisionError
from settings.paths import shared_dir
from settings.provision import file_lock
from settings.schema import RESOLVE

RepositoryKind = Literal["model", "dataset"]
_COMMIT = re.compile(r"[0-9a-f]{40}")


def revisions_file() -> Path:
    """Where they are recorded; it need not exist."""
    return shared_dir() / "resolved_revisions.json"


def recorded_revision(repository: str, kind: RepositoryKind = "model") -> str | None:
    """The recorded 40-hex commit; None before the first download.

    Raises:
        ProvisionError: the file is not what `pinned_revision` writes.
    """
    entry = _read(revisions_file()).get(f"{kind}:{repository}")
    return None if entry is None else entry["revision"]


def known_revision(repository: str, revision: str, kind: RepositoryKind = "model") -> str | None:
    """A setting's `revision` as a commit; None where it is `resolve` and nothing is recorded."""
    return recorded_revision(repository, kind) if revision == RESOLVE else revision


def pinned_revision(
    repository: str, revision: str, kind: RepositoryKind, ask: Callable[[], str]
) -> str:
    """As `known_revision`, but the first time `ask()` tells the commit, and it is recorded.

    Several processes may ask at once: one resolves, the others read what it recorded.
    """
    if (known := known_revision(repository, revision, kind)) is not None:
        return known
    file = revisions_file()
    with file_lock(file):
        entries = _read(file)
        if (entry := entries.get(f"{kind}:{repository}")) is not None:
            return entry["revision"]
        commit = ask()
        if not _COMMIT.fullmatch(commit):
            raise ProvisionError(
                f"the hub names {commit!r} as the revision of {repository}, no commit of 40 hex "
                "digits",
                "Pin the revision in the setting",
            )
        moment = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        entries[f"{kind}:{repository}"] = {"revision": commit, "resolved": moment}
        temporary = file.with_name(f".{file.name}.{os.getpid()}")
        temporary.write_text(json.dumps(entries, indent=1, sort_keys=True) + "\n")
        temporary.replace(file)
    return commit


def _read(file: Path) -> dict[str, dict[str, str]]:
    try:
        entries = json.loads(file.read_text(encoding="utf-8"))
        if all(_COMMIT.fullmatch(entry["revision"]) for entry in entries.values()):
            return dict(entries)
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        pass
    raise ProvisionError(
        f"{file} cannot be read as recorded revisions", "Restore it, or delete it to resolve anew"
    )
