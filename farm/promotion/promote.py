"""Bring an exported engine into a checkout."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engines.certificate import Status, check_folder
from engines.final_folder import LOCK, EngineLock, read_lock
from farm.promotion.atomic import recover, replaced_folder
from farm.promotion.errors import PromotionError
from settings.paths import checkout_root, work_dir


def final_dir(setting: str) -> Path:
    """Where a search leaves its winner (not created)."""
    return work_dir("final") / setting


@dataclass(frozen=True)
class FinalEngine:
    """A final folder whose lock, files and seed agree with its certificate."""

    folder: Path
    lock: EngineLock
    certificate: dict[str, Any]


def load_final(folder: Path, setting: str) -> FinalEngine:
    """Reads and checks a final folder of `setting`.

    Raises:
        EngineError: incomplete, or changed since it was written.
        PromotionError: of another setting, or lock and certificate disagree.
    """
    recover(folder)
    lock = read_lock(folder)
    if lock.setting != setting:
        raise PromotionError(
            f"{folder / LOCK}: setting is {lock.setting!r}", f"Promote one of {setting!r}"
        )
    found = check_folder(folder)
    trees = found["hashes"].get("final_tree"), found["hashes"].get("stock_tree")
    if trees != (lock.final_tree, lock.stock_tree):
        raise PromotionError(f"{folder}: lock and certificate name different trees", "Search again")
    return FinalEngine(folder, lock, found)


def promote(setting: str, checkout: Path | None = None, source: Path | None = None) -> Path:
    """Copies the winner of a search into `settings/<setting>/final` of a checkout.

    Args:
        source: the exported folder; `work/final/<setting>` of the data folder by default.

    Returns:
        the folder in the checkout; the one before it stays until the copy is complete.

    Raises:
        EngineError: the source is damaged.
        PromotionError: it is not certified, or the checkout lacks the setting.
    """
    home = (checkout or checkout_root()) / "settings" / setting
    if not (home / "setting.toml").is_file():
        raise PromotionError(
            f"{home} holds no setting.toml", "Give the checkout that has this setting"
        )
    winner = source or final_dir(setting)
    status = load_final(winner, setting).certificate.get("status")
    if status != Status.CERTIFIED.value:
        raise PromotionError(
            f"{winner} is {status}, not certified", "Only a certified engine is promoted"
        )
    target = home / "final"
    with replaced_folder(target) as fresh:
        shutil.copytree(winner, fresh, dirs_exist_ok=True)
        load_final(fresh, setting)
    return target
