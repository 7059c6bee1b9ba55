"""What a target's weights are: the hash its setting pins their source by, and the sha256 of every
weight file as an engine loads it."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass

from settings.errors import ProvisionError
from settings.provision import Progress, sha256_of
from settings.revisions import known_revision
from settings.schema import Checkpoint, Setting
from settings.weights import ensure_target

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class WeightHashes:
    """`pin` is `<source>:<hash, revision or seed>`; `files` maps a weight file to its sha256."""

    pin: str
    files: Mapping[str, str]


def weight_hashes(setting: Setting, progress: Progress = log.info) -> WeightHashes:
    """Reads every weight file of the setting's target (fetched first if it is not there).

    Raises:
        ProvisionError: it cannot be fetched, or its folder holds no weight file.
    """
    folder = ensure_target(setting, progress)
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise ProvisionError(f"{folder} holds no *.safetensors", "Provide the target's weights")
    return WeightHashes(
        pin_of(setting.target.checkpoint), {file.name: sha256_of(file) for file in files}
    )


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
        "random": str(checkpoint.seed),
    }
    return f"{checkpoint.source}:{pins[checkpoint.source] or 'not pinned'}"
