"""`specfarm evaluate`: candidates through the whole gate, as a campaign of their own.

Several share its baselines; each is screened, and each that was accepted is confirmed.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from engines.errors import TreeRefused
from engines.process_registry import ProcessRegistry
from engines.resolve import store_for
from engines.tree_store import Tree, TreeStore
from explorers.protocol import Change, Prediction, Proposal
from farm.campaign.baselines import Baselines, measure_baselines
from farm.campaign.candidate import Baseline, candidate_task
from farm.campaign.confirm import confirm, confirmed_row
from farm.campaign.context import CampaignContext
from farm.campaign.observer import Observer
from farm.campaign.options import SearchOptions
from farm.campaign.scheduler import Phase, Scheduler, Task, UnitStore
from farm.campaign.workers import Workers
from farm.ledger import Campaign, Ledger
from farm.results import CandidateResult
from farm.search.assemble import assemble, unit_keys
from farm.search.session import new_campaign, open_ledger
from farm.statistics.multiplicity import confirmation_confidence
from farm.verdicts import Verdict
from farm.workers.codec import decode_outcome, encode_outcome
from farm.workers.here import workers_here
from settings.errors import SpecfarmError
from settings.loading import load_setting

# Workers that leave no engine behind when the block ends.
OpenWorkers = Callable[[TreeStore], AbstractContextManager[Workers]]


@dataclass(frozen=True)
class Candidate:
    """Exactly one of: a patch's text (bytes as git takes them), a folder, a commit of the store."""

    name: str
    patch: str = ""
    folder: Path | None = None
    commit: str | None = None


def from_patch(path: Path) -> Candidate:
    """Raises SpecfarmError for what is no file, or an empty one."""
    if not path.is_file():
        raise SpecfarmError(f"--patch: {path} is not a file", "Give a unified diff")
    content = path.read_bytes()
    if not content.strip():
        raise SpecfarmError(f"--patch: {path} is empty", "Give a unified diff")
    # Stored mechanisms are all `change.patch`: their folder names them.
    name = path.resolve().parent.name if path.stem == "change" else path.stem
    return Candidate(name, patch=content.decode("utf-8", "surrogateescape"))


def from_folder(path: Path) -> Candidate:
    """Raises SpecfarmError for what is no engine tree's root."""
    if not path.is_dir():
        raise SpecfarmError(f"--tree: {path} is not a folder", "Give an engine tree's root")
    if not (path / "engine.toml").is_file():
        raise SpecfarmError(f"--tree: {path} holds no engine.toml", "Give an engine tree's root")
    return Candidate(path.name, folder=path)


def from_commit(commit: str) -> Candidate:
    return Candidate(commit[:12], commit=commit)


def evaluate(
    setting_name: str,
    candidates: Sequence[Candidate],
    observer: Observer,
    open_workers: OpenWorkers = workers_here,
) -> tuple[CandidateResult, ...]:
    """Baselines once, then measurement and forcing of every candidate and confirmation of those
    that were accepted; their rows, in the order given.

    Engines of farms that are gone are ended first; none of its own is left.

    Raises:
        SpecfarmError: a baseline cannot be measured, or a commit is not in the store.
    """
    for leftover in ProcessRegistry().reap_leftovers():
        observer.message(f"ended {leftover.arm} (pid {leftover.pid}) of a killed run")
    ledger = open_ledger()
    row = new_campaign(ledger, setting_name, SearchOptions(canaries=0))
    try:
        return _evaluate(row, ledger, candidates, observer, open_workers)
    except BaseException:
        ledger.set_status(row.id, "stopped")
        raise


def _evaluate(
    row: Campaign,
    ledger: Ledger,
    candidates: Sequence[Candidate],
    observer: Observer,
    open_workers: OpenWorkers,
) -> tuple[CandidateResult, ...]:
    store = store_for(load_setting(row.setting))
    ctx = assemble(row, ledger, observer, store)
    trees = [_tree(store, ctx.stock.commit, candidate) for candidate in candidates]
    units = UnitStore(ledger, unit_keys(ctx), encode_outcome, decode_outcome)
    flow = _flow(ctx, list(zip(candidates, trees, strict=True)))
    with open_workers(store) as workers:
        results: tuple[CandidateResult, ...] = Scheduler(flow, workers, units).run()
    ledger.set_status(row.id, "evaluated")
    return results


def _tree(store: TreeStore, stock: str, candidate: Candidate) -> Tree | TreeRefused | None:
    """The tree of a candidate that is no patch, or why it is refused; patches are committed as a
    search's are."""
    try:
        if candidate.folder is not None:
            return store.commit_tree(stock, candidate.folder, f"evaluate {candidate.name}")
        return None if candidate.commit is None else store.candidate(stock, candidate.commit)
    except TreeRefused as error:
        return error


def _given(tree: Tree | TreeRefused) -> Tree:
    if isinstance(tree, TreeRefused):
        raise tree
    return tree


def _flow(
    ctx: CampaignContext, candidates: Sequence[tuple[Candidate, Tree | TreeRefused | None]]
) -> Generator[Phase, list[Any], tuple[CandidateResult, ...]]:
    base = yield from measure_baselines(ctx)
    tasks = [
        _task(ctx, base, candidate, tree, f"{number:02d}-{candidate.name}")
        for number, (candidate, tree) in enumerate(candidates)
    ]
    ctx.observer.phase("evaluating", len(tasks))
    rows: list[CandidateResult] = yield Phase("evaluate", tasks)
    screened = [n for n, row in enumerate(rows) if row.decision.verdict is Verdict.ACCEPTED]
    for place in screened:
        level = confirmation_confidence(len(screened))
        confirmation = yield from confirm(ctx, rows[place], base, level)
        rows[place] = confirmed_row(rows[place], confirmation)
        ctx.observer.candidate(rows[place], None)
    return tuple(rows)


def _task(
    ctx: CampaignContext,
    base: Baselines,
    candidate: Candidate,
    tree: Tree | TreeRefused | None,
    identity: str,
) -> Task:
    proposal = Proposal(
        mechanism=candidate.name,
        component="unknown",
        hypothesis="given on the command line",
        change=Change(patch=candidate.patch),
        prediction=Prediction(1.0, "none made"),
        explorer="user",
    )
    baseline = Baseline(
        ctx.stock,
        ctx.stock_name,
        "stock",
        None,
        base.stock_to_ar,
        base.floor,
        base.calibration,
        base.untrusted,
    )
    hidden = ctx.prompts.verifier(f"verifier:{identity}:screening")
    build = None if tree is None else partial(_given, tree)
    return candidate_task(ctx, proposal, identity, 1, baseline, hidden, build)
