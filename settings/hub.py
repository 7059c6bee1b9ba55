"""Pinned snapshots and files of the Hugging Face hub.

A snapshot is listed first (names and sizes at one commit), so that room on the disk is known before
the first byte and completeness after the last. Files that have arrived stay in the hub cache of the
data folder: a download that broke off goes on with what is missing.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import NoReturn, TypeVar

from huggingface_hub import HfApi, hf_hub_download, snapshot_download, try_to_load_from_cache
from huggingface_hub.errors import HfHubHTTPError

from settings.disk_space import check_room
from settings.errors import ProvisionError
from settings.paths import shared_dir
from settings.provision import Progress
from settings.revisions import RepositoryKind, pinned_revision

ENDPOINT: str | None = None
"""Another hub's address; None is the library's own (`HF_ENDPOINT`, else the public hub)."""
_MODEL_FILES = ["*.json", "*.safetensors", "*.jinja", "*.model", "*.txt"]
_DEFAULT_BRANCH = "main"
_SERVER_FAULT = 500
_BROKEN_OFF_S = 3600.0
# The library changed its HTTP client between the versions we allow; each one's base is here.
_UNREACHABLE: tuple[type[Exception], ...] = (
    OSError,
    *(base for base in HfHubHTTPError.__bases__ if issubclass(base, Exception)),
)
_T = TypeVar("_T")


@dataclass(frozen=True)
class Listing:
    """What a repository holds at the commit `revision` (40 hex): path -> bytes."""

    revision: str
    sizes: Mapping[str, int]


def resolved_revision(repository: str, revision: str, kind: RepositoryKind) -> str:
    """The 40-hex commit a setting's `revision` means; `resolve` asks the hub once and records it.

    Raises:
        ProvisionError: the hub is not reachable or refuses.
    """
    return pinned_revision(
        repository, revision, kind, lambda: _list(repository, _DEFAULT_BRANCH, kind).revision
    )


def download_snapshot(repository: str, revision: str, folder: Path, progress: Progress) -> None:
    """Model files of `repository` at the 40-hex `revision` into `folder`.

    Raises:
        ProvisionError: refused (gated, no such revision), not reachable, no room on the disk, or
            not what the hub listed.
    """
    listing = _list(repository, revision, "model")
    names = {n for n in listing.sizes if any(fnmatch(n, pattern) for pattern in _MODEL_FILES)}
    if "config.json" not in names:
        raise ProvisionError(
            f"{repository} at {revision} holds no config.json", "Check checkpoint.repository"
        )
    cache = shared_dir("hub")
    _remove_broken_off(cache)
    absent = [name for name in names if not _is_cached(repository, revision, name, cache)]
    needed = sum(listing.sizes[name] for name in absent)
    check_room(f"{repository} at {revision[:12]}", needed, cache)
    progress(
        f"downloading {repository} at {revision[:12]} from the hub: "
        f"{len(absent)} of {len(names)} files, {needed / 1e9:.2f} GB"
    )
    fetched = _asked(
        repository,
        revision,
        lambda: snapshot_download(
            repository,
            revision=revision,
            cache_dir=cache,
            allow_patterns=_MODEL_FILES,
            endpoint=ENDPOINT,
        ),
    )
    for name in sorted(names):
        _check_size(Path(fetched) / name, listing.sizes[name], repository)
        _link(Path(fetched) / name, folder / name)


def download_file(
    repository: str, revision: str, file: str, kind: RepositoryKind, target: Path
) -> None:
    """One file of `repository` at `revision`, copied to `target`; raises as above."""
    cached = _asked(
        repository,
        revision,
        lambda: hf_hub_download(
            repository,
            file,
            revision=revision,
            repo_type=kind,
            cache_dir=shared_dir("hub"),
            endpoint=ENDPOINT,
        ),
    )
    shutil.copyfile(cached, target)


def _list(repository: str, revision: str, kind: RepositoryKind) -> Listing:
    def ask() -> Listing:
        hub = HfApi(endpoint=ENDPOINT)
        info = (hub.model_info if kind == "model" else hub.dataset_info)(
            repository, revision=revision, files_metadata=True
        )
        files = {file.rfilename: file.size or 0 for file in info.siblings or ()}
        return Listing(str(info.sha), files)

    return _asked(repository, revision, ask)


def _asked(repository: str, revision: str, ask: Callable[[], _T]) -> _T:
    """`ask()`, what goes wrong put in words."""
    where = f"{repository} at {revision}"
    try:
        return ask()
    except HfHubHTTPError as error:
        if error.response is not None and error.response.status_code >= _SERVER_FAULT:
            _unreachable(where, error)
        raise ProvisionError(
            f"the hub refused {where}: {_first_line(error)}",
            "Check the name and revision; for a gated repository log in with `hf auth login`",
        ) from None
    except _UNREACHABLE as error:
        _unreachable(where, error)


def _unreachable(where: str, error: Exception) -> NoReturn:
    raise ProvisionError(
        f"the hub cannot be reached for {where}: {_first_line(error)}",
        "Connect to it and try again (what has arrived is kept), copy shared/ of the data folder "
        "from a machine that has it, or name local copies: a checkpoint with source = 'local', a "
        "prompt set with file = its rows",
    ) from None


def _is_cached(repository: str, revision: str, name: str, cache: Path) -> bool:
    found = try_to_load_from_cache(repository, name, cache_dir=cache, revision=revision)
    return isinstance(found, str)


def _remove_broken_off(cache: Path) -> None:
    """Parts of files that a killed download left an hour ago or longer: nothing asks for them."""
    for part in cache.glob("*/blobs/*.????????.incomplete"):
        with contextlib.suppress(FileNotFoundError):
            if time.time() - part.stat().st_mtime > _BROKEN_OFF_S:
                part.unlink()


def _check_size(file: Path, listed: int, repository: str) -> None:
    found = file.stat().st_size if file.is_file() else 0
    if found != listed:
        real = file.resolve()
        raise ProvisionError(
            f"{repository}: {file.name} has {found} bytes, the hub lists {listed}",
            f"Delete {real} and try again",
        )


def _link(source: Path, link: Path) -> None:
    """A hard link to the cache's file: the cache stays whole, and nothing lies twice."""
    link.parent.mkdir(parents=True, exist_ok=True)
    os.link(source.resolve(), link)


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
