"""The end of a campaign: the winner exported with its certificate, and promoted on request."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from engines.sandbox import active_level
from engines.tree_store import TreeStore
from farm.campaign.context import CampaignContext
from farm.campaign.flow import CampaignEnd
from farm.ledger import Ledger
from farm.machine import clocks, versions
from farm.promotion.certificate import Evidence
from farm.promotion.errors import PromotionError
from farm.promotion.export import export_final
from farm.promotion.harness import harness_hash
from farm.promotion.promote import final_dir, load_final, promote
from farm.results import CampaignReport
from farm.workers.verify import CONFIRM
from settings.errors import SpecfarmError
from settings.loading import load_setting
from settings.weight_hashes import weight_hashes


def export_winner(
    ledger: Ledger, ctx: CampaignContext, store: TreeStore, end: CampaignEnd
) -> CampaignReport:
    """Writes `work/final/<setting>`; the report says so, or why not."""
    winner, confirmation = end.winner, end.confirmation
    if winner is None or confirmation is None:
        return end.report
    verified = confirmation.verified
    evidence = Evidence(
        engine=ctx.setting.engine.name,
        hardware=ctx.setting.hardware.gpu,
        stock_commit=ctx.stock.commit,
        harness=harness_hash(),
        seed=str(ledger.note_once(ctx.campaign_id, "heldout_seed", "")),
        seed_commitment=str(ledger.note_once(ctx.campaign_id, "heldout_seed_sha256", "")),
        heldout=confirmation.heldout,
        verification={} if verified is None else verified.evidence,
        thresholds={}
        if verified is None
        else {**verified.evidence.get("policy", {}), "power": CONFIRM["power"]},
        machine=ctx.machine,
        clocks=clocks(),
        versions=versions(),
        weights=weight_hashes(ctx.setting, ctx.observer.message),
        sandbox=active_level().summary,
        max_new_tokens=ctx.setting.decoding.max_new_tokens,
    )
    try:
        folder = export_final(end.report, winner, store, final_dir(ctx.setting.name), evidence)
    except PromotionError as error:
        note = f"not exported: {error}"
        return replace(end.report, promoted=None, notes=(*end.report.notes, note))
    return replace(end.report, notes=(*end.report.notes, f"exported to {folder}"))


def promote_campaign(ledger: Ledger, campaign_id: str, checkout: Path | None) -> Path:
    """Copies the campaign's exported engine into a checkout.

    Raises:
        SpecfarmError: the campaign exported nothing, or a later one took its place.
    """
    row = ledger.campaign(campaign_id)
    name = load_setting(row.setting).name
    folder = final_dir(name)
    if not folder.is_dir():
        raise SpecfarmError(
            f"campaign {row.id} exported no engine ({folder} does not exist)",
            f"See why: specfarm report {row.id}",
        )
    exported = load_final(folder, name).certificate.get("campaign")
    if exported != row.id:
        raise SpecfarmError(
            f"{folder} holds the winner of campaign {exported}, not of {row.id}",
            f"Promote that one: specfarm promote {exported}",
        )
    return promote(name, checkout)
