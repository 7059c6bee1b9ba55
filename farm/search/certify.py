"""`specfarm certify`: a promoted engine's certificate, checked and run again on this machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from engines.certificate import CERTIFICATE, Status, load_certificate, sha256
from engines.process_registry import ProcessRegistry
from engines.resolve import check_hardware
from engines.sandbox import active_level
from engines.serve import present_hardware
from farm.campaign.observer import Observer
from farm.machine import clocks, machine_facts, versions
from farm.promotion.certification import (
    Certification,
    Outcome,
    failed_check,
    our_numbers,
    outcome_of,
    record,
    revoke,
    their_numbers,
    utc_now,
)
from farm.promotion.checks import Check, check_certificate
from farm.promotion.errors import PromotionError
from farm.promotion.harness import harness_hash
from farm.promotion.promote import final_dir
from farm.search.certify_campaign import OpenWorkers, certify_campaign, measure_again
from farm.search.certify_target import CertifyOrder
from farm.search.prompts import prompt_supply
from farm.search.session import claim, open_ledger
from farm.workers.here import workers_here
from settings.hardware import hardware
from settings.loading import find_setting
from settings.weight_hashes import weight_hashes
from settings.weights import ensure_target


def certify(
    order: CertifyOrder, observer: Observer, open_workers: OpenWorkers = workers_here
) -> Certification:
    """Checks everything that can be checked, then measures and forces; writes certification.json
    and, for a failure, revokes the certificate. A run that was killed goes on where it was.

    Raises:
        SpecfarmError: nothing was learned (no weights, other hardware, stock failed); the status
            stays as it was.
    """
    target = order.target
    data, raw = load_certificate(target.folder)
    here = _present(order, data)
    for leftover in ProcessRegistry().reap_leftovers():
        observer.message(f"ended {leftover.arm} (pid {leftover.pid}) of a killed run")
    observer.message(f"certifying {target.folder}")
    if target.note:
        observer.message(target.note)
    checks = _checked(order, observer, data, raw)
    problem = failed_check(checks)
    found = Certification(
        outcome=Outcome.FAIL,
        reason=problem or "",
        setting=target.setting.name,
        final_tree=_final_tree(data),
        certificate_sha256=sha256(raw),
        date=utc_now(),
        checks=tuple(checks),
        theirs=their_numbers(data),
        ours=None,
        here=here,
    )
    if problem is None:
        return _run_again(order, observer, open_workers, data, found)
    _record(order, observer, found)
    return found


def _present(order: CertifyOrder, data: Mapping[str, Any]) -> dict[str, Any]:
    """The machine this runs on.

    Raises:
        EngineError: other hardware than the certificate's, unless that is wanted.
        PromotionError: the engine's acceptance was simulated.
    """
    target = order.target
    if data["status"] == Status.REPLAYED.value:
        raise PromotionError(
            f"{target.folder / CERTIFICATE}: acceptance was replayed", "There is nothing to run"
        )
    name = present_hardware("0" if hardware(target.setting.hardware.gpu).is_gpu else "cpu")
    check_hardware(target.folder, data, name, order.other_hardware)
    return {
        "hardware": name,
        "machine": machine_facts(),
        "versions": versions(),
        "sandbox": active_level().summary,
        "harness": harness_hash(),
        "prompts": "fresh" if order.fresh else "the certificate's",
        "seconds": order.timed_seconds,
    }


def _checked(
    order: CertifyOrder, observer: Observer, data: Mapping[str, Any], raw: bytes
) -> list[Check]:
    setting = order.target.setting
    observer.phase("checking folder, seed, prompts and weights", 1)
    model = ensure_target(setting, observer.message)
    checks = check_certificate(
        order.target.folder,
        data,
        raw,
        setting,
        lambda seed: prompt_supply(setting, model, seed).heldout,
        weight_hashes(setting, observer.message),
    )
    for check in checks:
        state = check.state.value.replace("_", " ")
        observer.message(f"  {check.name}: {state}: {check.detail}")
    return checks


def _run_again(
    order: CertifyOrder,
    observer: Observer,
    open_workers: OpenWorkers,
    data: Mapping[str, Any],
    found: Certification,
) -> Certification:
    ledger = open_ledger()
    row = certify_campaign(ledger, order, found.certificate_sha256, found.here["machine"])
    claim(ledger, row)
    observer.message(f"campaign {row.id} (if killed, the same command goes on with it)")
    ended = "stopped"
    try:
        measured = measure_again(ledger, row, order, data, observer, open_workers)
        outcome, reason = outcome_of(measured)
        seed = ledger.note_once(row.id, "heldout_seed", "")
        found = replace(
            found,
            outcome=outcome,
            reason=reason,
            date=str(ledger.note_once(row.id, "certified_at", found.date)),
            ours=our_numbers(measured),
            here=found.here | {"campaign": row.id, "clocks": clocks(), "seed": seed},
        )
        _record(order, observer, found)
        ended = "finished"
    finally:
        ledger.set_status(row.id, ended)
        ledger.close()
    return found


def _record(order: CertifyOrder, observer: Observer, found: Certification) -> None:
    """On other hardware a failure says nothing of the certified one. What is wrong with this folder
    alone is not held against a copy of it that `serve` might take; the rest is."""
    folder = order.target.folder
    if record(folder, found, may_revoke=not order.other_hardware):
        observer.message(f"{folder / CERTIFICATE} is revoked: {found.reason}")
        for copy in () if found.is_of_the_folder else _copies(order, found.certificate_sha256):
            if revoke(copy, found.reason, found.date):
                observer.message(f"{copy / CERTIFICATE}, the same certificate, is revoked too")


def _copies(order: CertifyOrder, certificate_sha256: str) -> list[Path]:
    """Other folders that `serve` looks into and that hold this very certificate."""
    target = order.target
    places = (find_setting(target.reference).parent / "final", final_dir(target.setting.name))
    return [
        place
        for place in places
        if place.resolve() != target.folder.resolve()
        and (place / CERTIFICATE).is_file()
        and sha256((place / CERTIFICATE).read_bytes()) == certificate_sha256
    ]


def _final_tree(data: Mapping[str, Any]) -> str:
    hashes = data.get("hashes")
    return str(hashes.get("final_tree")) if isinstance(hashes, dict) else "not recorded"
