"""The measurements of `specfarm certify` as a campaign of the ledger, of a kind of its own: what is
finished is not repeated when the same certification is started again after a kill."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

from engines.final_folder import read_lock, rebuild_final
from engines.resolve import store_for
from engines.tree_store import TreeStore
from farm.campaign.jobs import Job, MeasureOutcome, Outcome
from farm.campaign.observer import Observer
from farm.campaign.options import SearchOptions
from farm.campaign.scheduler import Scheduler, UnitStore
from farm.campaign.workers import Workers
from farm.ledger import Campaign, Ledger
from farm.machine import hardware_id
from farm.promotion.certification import Remeasured
from farm.search.assemble import assemble, unit_keys
from farm.search.certify_flow import CertifyPlan, remeasure
from farm.search.certify_prompts import certify_prompts
from farm.search.certify_target import CertifyOrder
from farm.workers.codec import decode_outcome, encode_outcome

KIND = "certify"
OpenWorkers = Callable[[TreeStore], AbstractContextManager[Workers]]


def certify_campaign(
    ledger: Ledger, order: CertifyOrder, certificate_sha256: str, machine: Mapping[str, Any]
) -> Campaign:
    """The unfinished certification of the same certificate on the same machine, else a new one."""
    options = {
        "kind": KIND,
        "certificate": certificate_sha256,
        "folder": str(order.target.folder),
        "seconds": order.timed_seconds,
        "fresh": order.fresh,
        "machine": hardware_id(machine),
    }
    for row in ledger.campaigns():
        unfinished = row.status in ("running", "stopped")
        if unfinished and (row.setting, row.options) == (order.target.reference, options):
            return row
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
    campaign_id = f"{KIND}-{stamp}-{secrets.token_hex(2)}"
    return ledger.create_campaign(campaign_id, order.target.reference, options)


def measure_again(
    ledger: Ledger,
    row: Campaign,
    order: CertifyOrder,
    certificate: Mapping[str, Any],
    observer: Observer,
    open_workers: OpenWorkers,
) -> Remeasured:
    """Rebuilds stock and final from the folder and runs every unit the ledger does not know.

    Raises:
        SpecfarmError: stock or the machine failed.
    """
    store = store_for(order.target.setting)
    final = rebuild_final(order.target.folder, store)
    # The engine's own stock, from its bundle: this checkout's may have moved on.
    ledger.note_once(row.id, "stock_commit", read_lock(order.target.folder).stock_commit)
    searching = replace(row, options=SearchOptions(canaries=0).to_json())
    ctx = replace(assemble(searching, ledger, observer, store), reference=None)
    plan = CertifyPlan(final, certify_prompts(ctx, certificate, order.fresh), order.timed_seconds)
    units = UnitStore(ledger, unit_keys(ctx), encode_outcome, decode_outcome)
    with open_workers(store) as workers:
        measured: Remeasured = Scheduler(
            remeasure(ctx, plan), workers, units, lambda job, end: _say(observer, job, end)
        ).run()
    return measured


def _say(observer: Observer, job: Job, outcome: Outcome) -> None:
    if isinstance(outcome, MeasureOutcome):
        took = outcome.seconds - outcome.waited_s
        observer.message(f"  {job.unit} {outcome.status} in {took:.0f} s")
