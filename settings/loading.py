"""Find, read and check settings: `settings/<name>/setting.toml` -> Setting."""

from __future__ import annotations

import difflib
import tomllib
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from settings.errors import SettingError
from settings.paths import checkout_root
from settings.rules import check_rules, check_twin
from settings.schema import Setting
from settings.schema_errors import explain


def settings_root() -> Path:
    """The folder that holds one folder a setting."""
    return checkout_root() / "settings"


def checkout_reference(folder: Path) -> str:
    """`folder` as a path that `find_setting` finds from any copy of this checkout: relative where
    it lies inside, else absolute."""
    folder, root = folder.resolve(), checkout_root()
    return str(folder.relative_to(root)) if folder.is_relative_to(root) else str(folder)


def list_settings(root: Path | None = None) -> list[str]:
    """Names of the settings below `root` (default: this checkout's), sorted."""
    return sorted(p.parent.name for p in (root or settings_root()).glob("*/setting.toml"))


def find_setting(name_or_path: str | Path, root: Path | None = None) -> Path:
    """The setting.toml meant by a name, a folder or a file; relative ones count from the current
    folder, else from the checkout.

    Raises:
        SettingError: none there; the message lists the nearest known names.
    """
    path = Path(name_or_path).expanduser()
    if path.suffix == ".toml" or "/" in str(name_or_path):
        file = path if path.suffix == ".toml" else path / "setting.toml"
        if not path.is_absolute() and not file.is_file():
            file = checkout_root() / file
        if not file.is_file():
            raise SettingError(
                f"{file} does not exist", "Give a setting's name or its setting.toml"
            )
        return file.resolve()
    root = root or settings_root()
    file = root / str(name_or_path) / "setting.toml"
    if not file.is_file():
        known = list_settings(root)
        near = difflib.get_close_matches(str(name_or_path), known, n=3, cutoff=0.4) or known
        raise SettingError(
            f"no setting is named {str(name_or_path)!r}", f"Nearest: {', '.join(near) or 'none'}"
        )
    return file.resolve()


def load_setting(name_or_path: str | Path, root: Path | None = None) -> Setting:
    """Read and check one setting. Relative checkpoint folders count from the setting's folder,
    those of source `checkout` from the repository's root.

    Raises:
        SettingError: naming file, field, value and what to write instead.
    """
    file = find_setting(name_or_path, root)
    setting = _read(file)
    check_rules(setting, file)
    if setting.exact_twin is not None:
        check_twin(setting, load_exact_twin(file), file)
    return setting


def load_exact_twin(name_or_path: str | Path, root: Path | None = None) -> Setting | None:
    """The FP32 twin a setting names, looked for beside that setting; None where it names none."""
    file = find_setting(name_or_path, root)
    setting = _read(file)
    if setting.exact_twin is None:
        return None
    try:
        twin_file = find_setting(setting.exact_twin, file.parent.parent)
    except SettingError as error:
        raise SettingError(f"{file}: exact_twin: {error.message}", error.remedy) from None
    twin = _read(twin_file)
    check_rules(twin, twin_file)
    return twin


def _read(file: Path) -> Setting:
    try:
        raw: dict[str, Any] = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingError(
            f"{file} cannot be read: {error.strerror}", "Check its permissions"
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise SettingError(f"{file} is not valid TOML: {error}", "Repair that line") from None
    try:
        setting = Setting.model_validate(raw)
    except ValidationError as error:
        raise explain(error, file) from None
    return _absolute(setting, file.parent)


def _absolute(setting: Setting, folder: Path) -> Setting:
    """Resolve the local folders and files a setting names against its own folder."""

    def resolved(section: Any, *keys: str) -> Any:
        changes = {
            key: str((folder / Path(value).expanduser()).resolve())
            for key in keys
            if (value := getattr(section, key)) is not None
        }
        return section.model_copy(update=changes)

    def with_checkpoint(section: Any) -> Any:
        if section.checkpoint is None:
            return section
        # A checkout's path stays as it is: it names the same files in every copy.
        keys = ("config",) if section.checkpoint.source == "checkout" else ("config", "path")
        checkpoint = resolved(section.checkpoint, *keys)
        return section.model_copy(update={"checkpoint": checkpoint})

    prompts = setting.prompts.model_copy(
        update={
            "search": tuple(resolved(source, "file") for source in setting.prompts.search),
            "heldout": tuple(resolved(source, "file") for source in setting.prompts.heldout),
        }
    )
    return setting.model_copy(
        update={
            "target": with_checkpoint(setting.target),
            "drafter": with_checkpoint(setting.drafter),
            "prompts": prompts,
        }
    )
