"""`specfarm evaluate`: one candidate through the whole gate, as a campaign of its own."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engines.resolve import store_for
from engines.tree_store import Tree, TreeStore
from explorers.protocol import Change, Prediction, Proposal
from farm.campaign.baselines import measure_baselines
from farm.campaign.candidate import Baseline, candidate_task, measure_and_verify
from farm.campaign.confirm import confirm, confirmed_row
from farm.campaign.context import CampaignContext
from farm.campaign.observer import Observer
from farm.campaign.options import SearchOptions
from farm.campaign.scheduler import Phase, Scheduler, Task, UnitStore
from farm.results import CandidateResult
from farm.search.assemble import assemble, unit_keys
from farm.search.session import new_campaign, open_ledger
from farm.verdicts import Verdict
from farm.workers.codec import decode_outcome, encode_outcome
from farm.workers.local import LocalWorkers
from farm.workers.measure import run_measure_job
from farm.workers.verify import VerifyService
from settings.errors import SpecfarmError
from settings.loading import load_setting


@dataclass(frozen=True)
class _Given:
    """What the command line named: a patch's text, or a commit of the store."""

    name: str
    patch: str = ""
    tree: Tree | None = None


def evaluate_one(
    setting_name: str,
    patch: Path | None,
    tree: Path | None,
    commit: str | None,
    observer: Observer,
) -> CandidateResult:
    """Baselines, measurement, forcing, confirmation on held-out prompts; the candidate's row.

    Raises:
        SpecfarmError: the patch or folder does not exist, or a baseline cannot be measured.
    """
    _check(patch, tree)
    ledger = open_ledger()
    setting = load_setting(setting_name)
    store = store_for(setting)
    row = new_campaign(ledger, setting_name, SearchOptions(canaries=0))
    ctx = assemble(row, ledger, observer, store)
    given = _given(store, ctx.stock.commit, patch, tree, commit)
    service = VerifyService(store)
    workers = LocalWorkers(lambda job: run_measure_job(job, store), service.run)
    try:
        units = UnitStore(ledger, unit_keys(ctx), encode_outcome, decode_outcome)
        result: CandidateResult = Scheduler(_flow(ctx, given), workers, units).run()
    finally:
        service.close()
        store.prune()
        ledger.set_status(row.id, "evaluated")
    return result


def _check(patch: Path | None, tree: Path | None) -> None:
    """Before a campaign is made for it: a wrong path should cost nothing."""
    if patch is not None and not patch.is_file():
        raise SpecfarmError(f"--patch: {patch} is not a file", "Give a unified diff")
    if patch is not None and not patch.read_bytes().strip():
        raise SpecfarmError(f"--patch: {patch} is empty", "Give a unified diff")
    if tree is not None and not tree.is_dir():
        raise SpecfarmError(f"--tree: {tree} is not a folder", "Give an engine tree's root")
    if tree is not None and not (tree / "engine.toml").is_file():
        raise SpecfarmError(f"--tree: {tree} holds no engine.toml", "Give an engine tree's root")


def _given(
    store: TreeStore, stock: str, patch: Path | None, tree: Path | None, commit: str | None
) -> _Given:
    if patch is not None:
        return _Given(patch.stem, patch=patch.read_bytes().decode("utf-8", "surrogateescape"))
    if tree is not None:
        return _Given(tree.name, tree=store.commit_tree(stock, tree, f"evaluate {tree.name}"))
    assert commit is not None
    return _Given(commit[:12], tree=store.tree(commit))


def _flow(ctx: CampaignContext, given: _Given) -> Generator[Phase, list[Any], CandidateResult]:
    base = yield from measure_baselines(ctx)
    proposal = Proposal(
        mechanism=given.name,
        component="unknown",
        hypothesis="given on the command line",
        change=Change(patch=given.patch),
        prediction=Prediction(1.0, "none made"),
        explorer="user",
    )
    baseline = Baseline(
        ctx.stock, ctx.stock_name, "stock", None, base.stock_to_ar, base.floor, base.calibration
    )
    task: Task
    if given.tree is None:
        task = candidate_task(ctx, proposal, "evaluate", 1, baseline)
    else:
        task = measure_and_verify(
            ctx, proposal, "evaluate", 1, given.tree, baseline, ctx.prompts.search
        )
    ctx.observer.phase(f"evaluating {given.name}", 1)
    rows: list[CandidateResult] = yield Phase("evaluate", [task])
    if rows[0].decision.verdict is not Verdict.ACCEPTED:
        return rows[0]
    confirmation = yield from confirm(ctx, rows[0], base)
    return confirmed_row(rows[0], confirmation)
