"""What of a certificate can be checked without running an engine: its seal, every hash, the seed,
the prompts the seed must give, the tree the bundle and the patches must make, the weights."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from engines.certificate import (
    check_commitment,
    check_every_file,
    check_seal,
    is_sealed,
    series_hash,
)
from engines.errors import EngineError
from engines.final_folder import LOCK, RESTORE, patch_files, read_lock, rebuild_final
from engines.resolve import store_for
from engines.tree_store import TreeStore
from farm.campaign.heldout_draws import Draw, HeldoutPrompts, drawn
from farm.promotion.harness import harness_hash
from settings.schema import Setting
from settings.weight_hashes import WeightHashes


class State(StrEnum):
    """`differs`: no fault of the engine's, but to be read with the result."""

    OK = "ok"
    FAILED = "failed"
    NOT_RECORDED = "not_recorded"
    DIFFERS = "differs"


@dataclass(frozen=True)
class Check:
    """One thing that was looked at; `detail` says what was found."""

    name: str
    state: State
    detail: str


class NotRecordedError(Exception):
    """The certificate does not say (an older version of it)."""


Prompt = tuple[str, tuple[int, ...]]


def check_certificate(
    folder: Path,
    certificate: Mapping[str, Any],
    raw: bytes,
    setting: Setting,
    heldout: Callable[[str], HeldoutPrompts],
    weights: WeightHashes,
) -> list[Check]:
    """Every check, none of which raises for what it finds.

    Args:
        raw: the bytes of certificate.json.
        heldout: held-out prompts of the setting under a given seed.
        weights: the target's and the drafter's as they are here.
    """
    return [
        _looked("seal", lambda: _seal(folder, certificate, raw)),
        _looked("files", lambda: _files(folder, certificate)),
        _looked("lock", lambda: _lock(folder, certificate, setting)),
        _looked("patch series", lambda: _series(folder, certificate)),
        _looked("tree", lambda: _tree(folder, setting)),
        _looked("seed", lambda: _seed(folder, certificate)),
        _looked("prompts", lambda: _prompts(certificate, heldout)),
        _looked("weights", lambda: _weights(certificate, weights)),
        _harness(certificate),
    ]


def recorded_prompts(certificate: Mapping[str, Any]) -> list[list[Prompt]]:
    """The rendered held-out prompts (id, token ids) by draw; version 1 knows one list of all."""
    heldout = certificate["heldout"]
    if "draws" not in heldout:
        numbered = heldout["prompt_ids"].items()
        return [[(key.partition(":")[2], tuple(ids)) for key, ids in numbered]]
    return [[(str(name), tuple(ids)) for name, ids in draw["prompts"]] for draw in heldout["draws"]]


def _looked(name: str, look: Callable[[], str]) -> Check:
    try:
        return Check(name, State.OK, look())
    except NotRecordedError as missing:
        return Check(name, State.NOT_RECORDED, str(missing))
    except EngineError as error:
        return Check(name, State.FAILED, error.message)
    except (KeyError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        return Check(name, State.FAILED, f"the certificate is malformed here: {error!r}")


def _seal(folder: Path, certificate: Mapping[str, Any], raw: bytes) -> str:
    if not is_sealed(certificate):
        raise NotRecordedError("certificate_sha256: a change of this file would go unnoticed")
    check_seal(folder, certificate, raw)
    return "certificate.json is as it was sealed"


def _files(folder: Path, certificate: Mapping[str, Any]) -> str:
    check_every_file(folder, certificate)
    return f"{len(certificate['hashes']['files'])} files have their recorded sha256"


def _lock(folder: Path, certificate: Mapping[str, Any], setting: Setting) -> str:
    lock = read_lock(folder)
    pairs = {
        "setting": (certificate["setting"], setting.name),
        "setting in the lock": (lock.setting, setting.name),
        "stock_tree": (certificate["hashes"]["stock_tree"], lock.stock_tree),
        "final_tree": (certificate["hashes"]["final_tree"], lock.final_tree),
        "harness": (certificate["hashes"]["harness"], lock.harness),
    }
    for name, (one, other) in pairs.items():
        if one != other:
            raise EngineError(f"{folder / LOCK}: {name} is {other}, certified was {one}", RESTORE)
    return f"final tree {lock.final_tree[:12]} on stock {lock.stock_tree[:12]}"


def _series(folder: Path, certificate: Mapping[str, Any]) -> str:
    patches = [path.read_bytes() for path in patch_files(folder)]
    if series_hash(patches) != certificate["hashes"]["patch_series"]:
        raise EngineError(f"{folder}: the patches are not the recorded series", RESTORE)
    return f"{len(patches)} patches in their order"


def _tree(folder: Path, setting: Setting) -> str:
    """In an empty store: nothing known from before can stand in for what the folder holds."""
    with tempfile.TemporaryDirectory(prefix="specfarm-certify-") as empty:
        store = TreeStore(root=Path(empty), policy=store_for(setting).policy)
        tree = rebuild_final(folder, store)
    return f"bundle and patches give tree {tree.tree_hash}"


def _seed(folder: Path, certificate: Mapping[str, Any]) -> str:
    check_commitment(folder, certificate)
    return "the revealed seed has the committed hash"


def _prompts(certificate: Mapping[str, Any], heldout: Callable[[str], HeldoutPrompts]) -> str:
    recorded = certificate["heldout"]
    if "draws" not in recorded:
        raise NotRecordedError("heldout.draws: which draws of the seed gave the prompts")
    draws = [Draw(str(draw["purpose"]), draw["take"]) for draw in recorded["draws"]]
    again = drawn(heldout(recorded["seed"]), draws)
    stored = recorded_prompts(certificate)
    for found, prompts in zip(again, stored, strict=True):
        given: Sequence[Prompt] = [(r.id, r.prompt_ids) for r in found.requests]
        if given != prompts:
            raise EngineError(f"draw {found.draw.purpose}: {_difference(prompts, given)}", RESTORE)
    return f"the seed gives the {sum(map(len, stored))} recorded prompts, id for id"


def _difference(stored: Sequence[Prompt], given: Sequence[Prompt]) -> str:
    for number, (one, other) in enumerate(zip(stored, given, strict=False)):
        if one != other:
            return f"prompt {number} ({one[0]}) is not what the seed gives ({other[0]})"
    return f"{len(stored)} prompts are recorded, the seed gives {len(given)}"


def _weights(certificate: Mapping[str, Any], found: WeightHashes) -> str:
    if "weights" not in certificate:
        raise NotRecordedError("weights: the sha256 of the target's weight files")
    recorded = certificate["weights"]
    compared = _same_weights("target", recorded, found)
    if found.drafter is None and "drafter" not in recorded:
        return compared
    if found.drafter is None:
        raise EngineError("the setting's drafter has no weights any more", "Restore setting.toml")
    if "drafter" not in recorded:
        raise NotRecordedError("weights: the sha256 of the drafter's weight files")
    return f"{compared}, {_same_weights('drafter', recorded['drafter'], found.drafter)}"


def _same_weights(role: str, recorded: Mapping[str, Any], found: WeightHashes) -> str:
    if recorded["pin"] != found.pin:
        raise EngineError(
            f"the setting pins its {role} by {found.pin}, certified was {recorded['pin']}",
            "Restore setting.toml",
        )
    for name in sorted(set(recorded["files"]) | set(found.files)):
        if recorded["files"].get(name) != found.files.get(name):
            raise EngineError(
                f"{role} weights {name} have sha256 {found.files.get(name)}, certified was "
                f"{recorded['files'].get(name)}",
                "Provide the certified weights",
            )
    return f"{len(found.files)} weight files of the {role} have their recorded sha256"


def _harness(certificate: Mapping[str, Any]) -> Check:
    """Code that judges moves on: a different harness is told, not held against the engine."""
    hashes, here = certificate.get("hashes"), harness_hash()
    recorded = hashes.get("harness") if isinstance(hashes, dict) else None
    if recorded == here:
        return Check("harness", State.OK, f"the harness that certified it ({here[:12]})")
    return Check(
        "harness", State.DIFFERS, f"judged now by {here[:12]}, certified by {str(recorded)[:12]}"
    )
