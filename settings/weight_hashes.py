"""What a setting's weights are: the hashes it pins target and drafter by, and the sha256 of every
weight file as an engine loads it."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from settings.errors import ProvisionError
from settings.provision import Progress, sha256_of
from settings.revisions import known_revision
from settings.schema import Checkpoint, Setting
from settings.weights import checkout_folder, ensure_drafter, ensure_target

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class WeightHashes:
    """The target's, with its drafter's where that has weights. `pin` is `<source>:<hash, revision
    or seed>`; `files` maps a weight file to its sha256."""

    pin: str
    files: Mapping[str, str]
    drafter: WeightHashes | None = None


def weight_hashes(setting: Setting, progress: Progress = log.info) -> WeightHashes:
    """Reads every weight file of the setting (fetched first if it is not there).

    Raises:
        ProvisionError: it cannot be fetched, or its folder holds no weight file.
    """
    target = _hashes(setting.target.checkpoint, ensure_target(setting, progress))
    checkpoint = setting.drafter.checkpoint
    if checkpoint is None:
        return target
    # What lies there is compared with what was certified, not refused here.
    unchecked = checkout_folder(checkpoint) if checkpoint.source == "checkout" else None
    folder = unchecked or ensure_drafter(setting, progress)
    return target if folder is None else replace(target, drafter=_hashes(checkpoint, folder))


def _hashes(checkpoint: Checkpoint, folder: Path) -> WeightHashes:
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise ProvisionError(f"{folder} holds no *.safetensors", "Provide the weights")
    return WeightHashes(pin_of(checkpoint), {file.name: sha256_of(file) for file in files})


def pin_of(checkpoint: Checkpoint) -> str:
    """What the setting itself says of the source, or what its first download recorded; a local
    folder may have no hash."""
    revision = checkpoint.revision
    if checkpoint.repository is not None and revision is not None:
        revision = known_revision(checkpoint.repository, revision)
    pins = {
        "pypi": checkpoint.sha256,
        "hub": revision,
        "local": checkpoint.sha256,
        "checkout": checkpoint.sha256,
        "random": str(checkpoint.seed),
    }
    return f"{checkpoint.source}:{pins[checkpoint.source] or 'not pinned'}"
