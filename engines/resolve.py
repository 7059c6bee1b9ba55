"""Which tree an arm of a setting runs: stock from this checkout, or the promoted final."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engines.certificate import CERTIFICATE, Status, check_files, read_certificate
from engines.errors import EngineError
from engines.final_folder import LOCK, read_lock, rebuild_final
from engines.patch_policy import PatchPolicy
from engines.protocol import StockKnobs
from engines.registry import engine_driver
from engines.tree_store import Tree, TreeStore
from settings.loading import list_settings, load_setting
from settings.paths import checkout_root, data_root
from settings.schema import ArmName, Setting


@dataclass(frozen=True)
class ResolvedTree:
    """A checkout ready to launch. `origin` says in words where the tree came from."""

    path: Path
    tree_hash: str
    commit: str
    origin: str


def store_for(setting: Setting) -> TreeStore:
    """The tree store with the policy of this setting's engine."""
    driver = engine_driver(setting.engine.name)
    return TreeStore(policy=PatchPolicy(setting_owned_keys=driver.setting_owned_keys))


def import_stock(setting: Setting, store: TreeStore) -> Tree:
    """The stock tree of this checkout for a setting's engine, with the setting's drafter."""
    name = setting.engine.name
    driver = engine_driver(name)
    tree = store.import_stock(driver.stock_source(), name)
    knobs = driver.stock_knobs(setting) if isinstance(driver, StockKnobs) else {}
    return store.commit_knobs(tree.commit, knobs) if knobs else tree


def final_folder(setting: Setting) -> Path:
    """`work/final/<name>` of the data folder (the last search's winner), else the promoted one in
    `settings/<name>/final` of the checkout. An exact twin without one of its own runs the engine of
    the setting that names it: the same tree, in FP32.

    Raises:
        EngineError: neither exists; names both.
    """
    names = (setting.name, *_twinned_with(setting.name))
    places = (
        *(data_root() / "work" / "final" / name for name in names),
        *(checkout_root() / "settings" / name / "final" for name in names),
    )
    for place in places:
        if (place / LOCK).exists():
            return place
    raise EngineError(
        f"{setting.name} has no final engine: "
        f"neither {places[0]} nor {places[len(names)]} holds one",
        f"Find one with: specfarm search {setting.name}",
    )


def _twinned_with(name: str) -> tuple[str, ...]:
    """Settings of this checkout that name `name` as their exact twin."""
    return tuple(other for other in list_settings() if load_setting(other).exact_twin == name)


def resolve_arm(
    setting: Setting,
    arm: ArmName,
    *,
    hardware_name: str | None = None,
    allow_other_hardware: bool = False,
    allow_revoked: bool = False,
    store: TreeStore | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> ResolvedTree:
    """The tree of `ar`, `stock` or `final`, checked out and verified.

    Args:
        hardware_name: what it is about to run on (settings.hardware's names); default: the
            setting's own.
        allow_other_hardware: run a final on other hardware than its certificate's.
        allow_revoked: run a final whose certificate did not hold when it was run again.
        say: told once which source was taken.

    Raises:
        EngineError: no final; a certificate that is revoked or was changed; other hardware than
            certified; a hash that differs from the lock (names the field).
    """
    store = store or store_for(setting)
    if arm in ("ar", "stock"):
        tree = import_stock(setting, store)
        origin = f"{setting.engine.name} stock of this checkout"
    elif arm == "final":
        folder = final_folder(setting)
        certificate = read_certificate(folder)
        check_status(folder, certificate, allow_revoked)
        check_hardware(
            folder, certificate, hardware_name or setting.hardware.gpu, allow_other_hardware
        )
        tree = rebuild_final(folder, store)
        check_files(folder, certificate)
        origin = f"final engine of {folder} on stock {read_lock(folder).stock_tree[:12]}"
        if certificate["status"] != Status.CERTIFIED.value:
            origin += f", {certificate['status']}"
    else:
        raise EngineError(f"arm {arm!r} has no tree of its own", "Use one of: ar, stock, final")
    say(origin)
    return ResolvedTree(store.checkout(tree.commit), tree.tree_hash, tree.commit, origin)


def check_status(folder: Path, certificate: Mapping[str, Any], allow_revoked: bool) -> None:
    """Raises EngineError for a certificate that is revoked (unless allowed) or replayed."""
    status = certificate["status"]
    if status == Status.CERTIFIED.value or (status == Status.REVOKED.value and allow_revoked):
        return
    revoked = certificate.get("revoked")
    why = f" ({revoked.get('reason')})" if isinstance(revoked, dict) else ""
    remedy = "Serve stock, or search again"
    if status == Status.REVOKED.value:
        remedy = "Serve stock, search again, or pass --revoked to run it all the same"
    raise EngineError(f"{folder / CERTIFICATE}: status is {status}, not certified{why}", remedy)


def check_hardware(
    folder: Path, certificate: Mapping[str, Any], hardware_name: str, allow_other: bool
) -> None:
    """Raises EngineError where the certificate is for other hardware than this."""
    certified_on = certificate["hardware"]
    if certified_on != hardware_name and not allow_other:
        raise EngineError(
            f"{folder / CERTIFICATE}: hardware is {certified_on}, this is {hardware_name}",
            "Pass --other-hardware to run it uncertified",
        )
