"""Gathers a campaign's inputs: stock tree, prompts, explorers, machine facts, ledger keys."""

from __future__ import annotations

import hashlib
import json
import secrets
import shutil
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import transformers

from engines.registry import engine_driver
from engines.resolve import import_stock
from engines.tree_store import Tree, TreeStore
from explorers.memory_explorer import canary_proposals
from explorers.registry import make_explorer
from farm.campaign.context import CampaignContext
from farm.campaign.jobs import Job, MeasureJob
from farm.campaign.observer import Observer
from farm.campaign.options import SearchOptions
from farm.ledger import Campaign, Ledger, UnitKey
from farm.machine import environment_hash, hardware_id, machine_facts
from farm.promotion.harness import harness_hash
from farm.search.bench_statistics import BenchStatistics
from farm.search.budget_clock import budget_clock
from farm.search.campaign_guards import campaign_guards
from farm.search.prompts import prompt_supply
from settings.loading import load_exact_twin, load_setting
from settings.paths import checkout_root
from settings.prompts import seed_commitment
from settings.weights import ensure_target


def import_reference(store: TreeStore) -> Tree:
    """transformers' own generate behind the same HTTP surface."""
    return store.import_stock(engine_driver("transformers").stock_source(), "transformers")


def assemble(
    campaign: Campaign, ledger: Ledger, observer: Observer, store: TreeStore
) -> CampaignContext:
    """The context of a new or a resumed campaign.

    The stock commit and the secret seed are fixed in the ledger the first time (the seed's hash is
    its public commitment), so that a resumed campaign goes on with the same ones even when the
    checkout has changed.
    """
    clock = budget_clock(campaign.created, ledger.units(campaign.id))
    setting = load_setting(campaign.setting)
    options = SearchOptions.from_json(campaign.options)
    observer.message("preparing weights and prompts")
    tokenizer_dir = ensure_target(setting, observer.message)
    commit = str(ledger.note_once(campaign.id, "stock_commit", import_stock(setting, store).commit))
    reference = str(
        ledger.note_once(campaign.id, "reference_commit", import_reference(store).commit)
    )
    seed = str(ledger.note_once(campaign.id, "heldout_seed", secrets.token_hex(16)))
    ledger.note_once(campaign.id, "heldout_seed_sha256", seed_commitment(seed))
    campaign_seed = int(hashlib.sha256(campaign.id.encode()).hexdigest()[:8], 16)
    by_path = "/" in campaign.setting
    twin = load_exact_twin(campaign.setting)
    twin_ref = None
    if twin is not None:
        twin_ref = str(Path(campaign.setting).parent / twin.name) if by_path else twin.name
    return CampaignContext(
        campaign_id=campaign.id,
        setting=setting,
        exact_setting=twin_ref,
        options=options,
        stock=store.tree(commit),
        reference=store.tree(reference),
        reference_name=f"transformers-{transformers.__version__}",
        trees=store,
        statistics=BenchStatistics(setting.measurement.estimator),
        guards=campaign_guards(setting, tokenizer_dir),
        prompts=prompt_supply(setting, tokenizer_dir, seed),
        explorers=[make_explorer(name) for name in options.explorers],
        canaries=canary_proposals(options.canaries, campaign_seed),
        observer=observer,
        seed=campaign_seed,
        started=campaign.created,
        machine=machine_facts(),
        setting_path=campaign.setting if by_path else None,
        has_compiler=shutil.which("g++") is not None,
        clock=clock,
    )


def unit_keys(ctx: CampaignContext) -> Callable[[Job], UnitKey]:
    """How this campaign's jobs map to ledger units."""
    # The same setting in another copy of the checkout is the same work.
    facts = json.dumps(ctx.setting.model_dump(), sort_keys=True)
    setting = f"{ctx.setting.name}@{_digest(facts.replace(str(checkout_root()), ''))}"
    environment = environment_hash()
    harness = harness_hash()
    machine = hardware_id(ctx.machine)

    def key_of(job: Job) -> UnitKey:
        if isinstance(job, MeasureJob):
            tree = next(arm.tree_hash for arm in job.arms if arm.label == job.subject)
            asked: tuple[Any, ...] = (*job.requests, *job.exact_requests, *job.verifier_prompts)
            given: Any = [asdict(request) for request in asked]
        else:
            # What is forced is part of the unit: other answers need another verdict.
            tree = job.stock_tree
            given = [job.ar_answers, job.stock_answers, job.answers, job.exact_answers]
            given += [job.restarted_answers, job.verifier_requests, job.verifier_answers]
        phase, _, subject = job.unit.partition(":")
        return UnitKey(
            campaign=ctx.campaign_id,
            setting=setting,
            stock_tree=ctx.stock.tree_hash,
            tree=tree,
            environment=environment,
            harness=harness,
            hardware=machine,
            phase=phase,
            prompt_set=_digest(given),
            subject=subject,
        )

    return key_of


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]
