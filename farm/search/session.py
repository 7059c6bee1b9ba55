"""Runs a campaign from start (or from where it was killed) to the exported engine."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable
from contextlib import suppress

import psutil

from engines.process_registry import ProcessRegistry
from engines.resolve import store_for
from farm.campaign.context import CampaignContext
from farm.campaign.flow import CampaignEnd, campaign
from farm.campaign.jobs import Job, MeasureOutcome, Outcome
from farm.campaign.observer import Observer
from farm.campaign.options import SearchOptions
from farm.campaign.scheduler import Scheduler, UnitStore
from farm.campaign.workers import Workers
from farm.ledger import Campaign, Ledger
from farm.results import CampaignReport
from farm.search.assemble import assemble, unit_keys
from farm.search.budget_clock import BudgetClock
from farm.search.finish import export_winner
from farm.workers.codec import decode_outcome, encode_outcome
from settings.errors import SpecfarmError
from settings.loading import checkout_reference, find_setting, load_setting
from settings.paths import work_dir
from settings.schema import Setting

MakeWorkers = Callable[[Setting, int], Workers]


def open_ledger() -> Ledger:
    """The data folder's ledger."""
    return Ledger(work_dir() / "ledger.sqlite")


def new_campaign(ledger: Ledger, setting: str, options: SearchOptions) -> Campaign:
    """A row for a new campaign of a setting, given by name or path; its id is the UTC time and four
    random hex digits."""
    reference = checkout_reference(find_setting(setting).parent) if "/" in setting else setting
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
    campaign_id = f"{stamp}-{secrets.token_hex(2)}"
    return ledger.create_campaign(campaign_id, reference, options.to_json())


def claim(ledger: Ledger, campaign_row: Campaign) -> None:
    """Makes this process the campaign's owner.

    Raises:
        SpecfarmError: another live process runs it.
    """
    owner = campaign_row.owner_pid
    if campaign_row.status == "running" and owner not in (None, os.getpid()):
        with suppress(psutil.Error):
            process = psutil.Process(owner)
            if process.create_time() <= campaign_row.updated and process.is_running():
                raise SpecfarmError(
                    f"campaign {campaign_row.id} is being run by process {owner}",
                    "Wait for it, or end that process first",
                )
    ledger.set_status(campaign_row.id, "running")


def run_campaign(
    ledger: Ledger, row: Campaign, observer: Observer, make_workers: MakeWorkers
) -> CampaignReport:
    """Runs (or goes on with) a campaign; finished units come from the ledger.

    Returns the final report, its winner (if any) exported to `work/final/<setting>`.
    """
    for leftover in ProcessRegistry().reap_leftovers():
        observer.message(f"ended {leftover.arm} (pid {leftover.pid}) of a killed run")
    store = store_for(load_setting(row.setting))
    ctx = assemble(row, ledger, observer, store)
    workers = make_workers(ctx.setting, ctx.options.workers)
    try:
        units = UnitStore(ledger, unit_keys(ctx), encode_outcome, decode_outcome)
        end: CampaignEnd = Scheduler(
            campaign(ctx), workers, units, lambda job, end: _heard(ctx, job, end)
        ).run()
    except BaseException:
        ledger.set_status(row.id, "stopped")
        raise
    finally:
        close = getattr(workers, "close", None)
        if close is not None:
            close()
        store.prune()
    report = export_winner(ledger, ctx, store, end)
    observer.report(report)
    ledger.set_status(row.id, "finished", report.to_json())
    return report


def _heard(ctx: CampaignContext, job: Job, outcome: Outcome) -> None:
    """What was waited for others costs no budget; units without a verdict of their own are said."""
    if isinstance(ctx.clock, BudgetClock):
        ctx.clock.excuse(outcome.waited_s)
    if isinstance(outcome, MeasureOutcome) and not job.unit.startswith("measure:"):
        took = outcome.seconds - outcome.waited_s
        waited = f", after waiting {outcome.waited_s:.0f} s" if outcome.waited_s >= 1.0 else ""
        ctx.observer.message(f"  {job.unit} {outcome.status} in {took:.0f} s{waited}")
