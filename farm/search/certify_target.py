"""What `specfarm certify` is asked: which folder, of which setting, how long, on which prompts."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from engines.final_folder import LOCK, read_lock
from farm.promotion.errors import PromotionError
from farm.promotion.promote import final_dir
from settings.loading import checkout_reference, find_setting, load_setting
from settings.schema import Setting


@dataclass(frozen=True)
class CertifyTarget:
    """`reference` is what jobs load the setting by; `note` says what else could have been meant."""

    reference: str
    setting: Setting
    folder: Path
    note: str = ""


def certify_target(
    setting: str, folder: Path | None = None, checkout: Path | None = None
) -> CertifyTarget:
    """`folder`, else `settings/<name>/final` of `checkout` (default: this one), else the last
    search's `work/final/<name>` of the data folder.

    Raises:
        SettingError: no such setting there.
        PromotionError: no promoted engine there.
    """
    if checkout is not None:
        setting = str((checkout / "settings" / setting).resolve())
    home = find_setting(setting).parent
    loaded = load_setting(setting)
    reference = checkout_reference(home) if "/" in setting else setting
    if folder is not None:
        return CertifyTarget(reference, loaded, _holding(folder))
    promoted, searched = home / "final", final_dir(loaded.name)
    if checkout is not None or (promoted / LOCK).exists():
        return CertifyTarget(reference, loaded, _holding(promoted), _other(promoted, searched))
    if not (searched / LOCK).exists():
        raise PromotionError(
            f"{loaded.name} has no promoted engine: neither {promoted} nor {searched} holds one",
            f"Find one with: specfarm search {loaded.name}",
        )
    return CertifyTarget(reference, loaded, searched)


def _holding(folder: Path) -> Path:
    if not (folder / LOCK).exists():
        raise PromotionError(f"{folder} holds no {LOCK}", "Name a promoted engine's folder")
    return folder.resolve()


def _other(promoted: Path, searched: Path) -> str:
    """What `serve` would take instead of the folder that is certified."""
    if not (searched / LOCK).exists():
        return ""
    tree = read_lock(searched).final_tree
    if tree == read_lock(promoted).final_tree:
        return ""
    return (
        f"the last search left another engine (tree {tree[:12]}), which serve takes first; "
        f"certify it with --folder {searched}"
    )


@dataclass(frozen=True)
class CertifyOrder:
    """`seconds`: timed seconds of final and stock in one launch; None takes half of what the
    setting gives a candidate. `fresh`: time prompts that the certificate does not hold."""

    target: CertifyTarget
    seconds: float | None = None
    fresh: bool = True
    other_hardware: bool = False

    @property
    def timed_seconds(self) -> float:
        return self.seconds or self.target.setting.measurement.seconds_per_candidate / 2
