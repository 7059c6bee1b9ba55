"""Pinned snapshots and files of the Hugging Face hub."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Literal

import httpx
from huggingface_hub import hf_hub_download, snapshot_download
from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError, OfflineModeIsEnabled

from settings.errors import ProvisionError
from settings.provision import Progress

_MODEL_FILES = ["*.json", "*.safetensors", "*.jinja", "*.model", "*.txt"]
_UNREACHABLE = (LocalEntryNotFoundError, OfflineModeIsEnabled, httpx.HTTPError, OSError)


def download_snapshot(repository: str, revision: str, folder: Path, progress: Progress) -> None:
    """Model files of `repository` at the 40-hex `revision` into `folder`.

    Raises:
        ProvisionError: refused (gated, no such revision) or not reachable.
    """
    progress(f"downloading {repository} at {revision[:12]} from the hub")
    try:
        snapshot_download(
            repository, revision=revision, local_dir=folder, allow_patterns=_MODEL_FILES
        )
    except HfHubHTTPError as error:
        raise _refused(repository, revision, error) from None
    except _UNREACHABLE as error:
        raise _unreachable(repository, revision, error) from None
    shutil.rmtree(folder / ".cache", ignore_errors=True)
    if not (folder / "config.json").is_file():
        raise ProvisionError(
            f"{repository} at {revision} holds no config.json", "Check checkpoint.repository"
        )


def download_file(
    repository: str, revision: str, file: str, kind: Literal["model", "dataset"], target: Path
) -> None:
    """One file of `repository` at `revision`, copied to `target`; raises as above."""
    try:
        cached = hf_hub_download(repository, file, revision=revision, repo_type=kind)
    except HfHubHTTPError as error:
        raise _refused(repository, revision, error) from None
    except _UNREACHABLE as error:
        raise _unreachable(repository, revision, error) from None
    shutil.copyfile(cached, target)


def _refused(repository: str, revision: str, error: Exception) -> ProvisionError:
    return ProvisionError(
        f"the hub refused {repository} at {revision}: {_first_line(error)}",
        "Check the name and revision; for a gated repository log in with `hf auth login`",
    )


def _unreachable(repository: str, revision: str, error: Exception) -> ProvisionError:
    return ProvisionError(
        f"the hub cannot be reached for {repository} at {revision}: {_first_line(error)}",
        "Connect to it, or put the files in a folder and use a checkpoint with source = 'local'",
    )


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
