"""Which tree an arm of a setting runs: stock from this checkout, or the promoted final."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from engines.errors import EngineError
from engines.final_folder import check_files, read_certificate, read_lock, rebuild_final
from engines.patch_policy import PatchPolicy
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
    """The stock tree of this checkout for a setting's engine."""
    name = setting.engine.name
    return store.import_stock(engine_driver(name).stock_source(), name)


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
        if (place / "engine.lock").exists():
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
    store: TreeStore | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> ResolvedTree:
    """The tree of `ar`, `stock` or `final`, checked out and verified.

    Args:
        hardware_name: what it is about to run on (settings.hardware's names); default: the
            setting's own.
        allow_other_hardware: run a final on other hardware than its certificate's.
        say: told once which source was taken.

    Raises:
        EngineError: no final; a revoked certificate; other hardware than certified; a hash that
            differs from the lock (names the field).
    """
    store = store or store_for(setting)
    if arm in ("ar", "stock"):
        tree = import_stock(setting, store)
        origin = f"{setting.engine.name} stock of this checkout"
    elif arm == "final":
        folder = final_folder(setting)
        check_certificate(folder, hardware_name or setting.hardware.gpu, allow_other_hardware)
        tree = rebuild_final(folder, store)
        check_files(folder, read_certificate(folder))
        origin = f"final engine of {folder} on stock {read_lock(folder).stock_tree[:12]}"
    else:
        raise EngineError(f"arm {arm!r} has no tree of its own", "Use one of: ar, stock, final")
    say(origin)
    return ResolvedTree(store.checkout(tree.commit), tree.tree_hash, tree.commit, origin)


def check_certificate(folder: Path, hardware_name: str, allow_other_hardware: bool) -> None:
    """Refuses a final whose certificate is revoked, replayed, or for other hardware."""
    certificate = read_certificate(folder)
    status, certified_on = certificate["status"], certificate["hardware"]
    if status != "certified":
        raise EngineError(
            f"{folder / 'certificate.json'}: status is {status}, not certified",
            "Serve stock, or search again",
        )
    if certified_on != hardware_name and not allow_other_hardware:
        raise EngineError(
            f"{folder / 'certificate.json'}: hardware is {certified_on}, this is {hardware_name}",
            "Pass --other-hardware to run it uncertified",
        )
