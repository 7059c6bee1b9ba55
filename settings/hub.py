"""Pinned snapshots and files of the Hugging Face hub."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Literal

import httpx
from huggingface_hub import hf_hub_download, snapshot_download
from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError, OfflineModeIsEnabled

from settings.errors import ProvisionError
from settings.paths import shared_dir
from settings.provision import Progress

_MODEL_FILES = ["*.json", "*.safetensors", "*.jinja", "*.model", "*.txt"]
_LOCAL_CHECKPOINT = "put the files in a folder and use a checkpoint with source = 'local'"
_LOCAL_FILE = "give the prompt set file = a local copy"
_UNREACHABLE = (LocalEntryNotFoundError, OfflineModeIsEnabled, httpx.HTTPError, OSError)


def download_snapshot(repository: str, revision: str, folder: Path, progress: Progress) -> None:
    """Model files of `repository` at the 40-hex `revision` into `folder`.

    Raises:
        ProvisionError: refused (gated, no such revision) or not reachable.
    """
    progress(f"downloading {repository} at {revision[:12]} from the hub")
    try:
        cached = snapshot_download(
            repository,
            revision=revision,
            cache_dir=shared_dir("hub"),
            allow_patterns=_MODEL_FILES,
        )
    except HfHubHTTPError as error:
        raise _refused(repository, revision, error) from None
    except _UNREACHABLE as error:
        raise _unreachable(repository, revision, error, _LOCAL_CHECKPOINT) from None
    if not (Path(cached) / "config.json").is_file():
        raise ProvisionError(
            f"{repository} at {revision} holds no config.json", "Check checkpoint.repository"
        )
    _link_tree(Path(cached), folder)


def download_file(
    repository: str, revision: str, file: str, kind: Literal["model", "dataset"], target: Path
) -> None:
    """One file of `repository` at `revision`, copied to `target`; raises as above."""
    try:
        cached = hf_hub_download(
            repository, file, revision=revision, repo_type=kind, cache_dir=shared_dir("hub")
        )
    except HfHubHTTPError as error:
        raise _refused(repository, revision, error) from None
    except _UNREACHABLE as error:
        raise _unreachable(repository, revision, error, _LOCAL_FILE) from None
    shutil.copyfile(cached, target)


def _refused(repository: str, revision: str, error: Exception) -> ProvisionError:
    return ProvisionError(
        f"the hub refused {repository} at {revision}: {_first_line(error)}",
        "Check the name and revision; for a gated repository log in with `hf auth login`",
    )


def _unreachable(
    repository: str, revision: str, error: Exception, otherwise: str
) -> ProvisionError:
    return ProvisionError(
        f"the hub cannot be reached for {repository} at {revision}: {_first_line(error)}",
        f"Connect to it, or {otherwise}",
    )


def _link_tree(source: Path, target: Path) -> None:
    """Hard links to the cache's files: it can resume a broken download, and nothing lies twice."""
    for file in source.rglob("*"):
        if file.is_file():
            link = target / file.relative_to(source)
            link.parent.mkdir(parents=True, exist_ok=True)
            os.link(file.resolve(), link)


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
