"""The campaign as one generator of phases: baselines, rounds, merges, confirmation, report."""

from __future__ import annotations

import random
import time
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from explorers.protocol import Change, Evidence, ExplorerContext, Proposal
from explorers.selection import left_out
from farm.campaign.baselines import Baselines, measure_baselines
from farm.campaign.candidate import Baseline, candidate_task
from farm.campaign.confirm import Confirmation, confirm, confirmed_row
from farm.campaign.context import CampaignContext, TreeLike
from farm.campaign.merge import merge_accepted
from farm.campaign.scheduler import Phase
from farm.campaign.shrink import with_shrunken
from farm.results import CampaignReport, CandidateResult
from farm.statistics.multiplicity import confirmation_confidence
from farm.verdicts import Decision, Verdict

# Set aside from the budget for merging and confirming, in measurements' worth of time.
_RESERVED_MEASUREMENTS = 5


@dataclass(frozen=True)
class CampaignEnd:
    """What a finished campaign hands to promotion."""

    report: CampaignReport
    winner: CandidateResult | None
    confirmation: Confirmation | None


@dataclass
class _State:
    """What the flow has learned so far (rebuilt from the ledger's outcomes on resume). `competing`:
    who was accepted at screening; `level`: that of the last confirmation."""

    rows: dict[str, CandidateResult] = field(default_factory=dict)
    changes: dict[str, Change] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    competing: set[str] = field(default_factory=set)
    level: float | None = None


def campaign(ctx: CampaignContext) -> Generator[Phase, list[Any], CampaignEnd]:
    """Runs the whole search; every measurement is a unit of the ledger."""
    state = _State(notes=_left_out(ctx))
    base = yield from measure_baselines(ctx)
    if base.untrusted is not None:
        state.notes.append(f"{base.untrusted}; candidates are measured, nothing is promoted")
        ctx.observer.message(state.notes[-1])
    _publish(ctx, state, base)
    incumbent: CandidateResult | None = None
    confirmation: Confirmation | None = None
    for round_ in range(1, ctx.options.rounds + 1):
        if round_ > 1 and not _time_for_more(ctx):
            state.notes.append(f"round {round_} not started: the budget is spent")
            break
        winner = yield from _round(ctx, state, base, round_, incumbent)
        if winner is None:
            break
        state.level = confirmation_confidence(len(state.competing))
        confirmation_of_round = yield from confirm(ctx, winner, base, state.level)
        row = _above(incumbent, confirmed_row(winner, confirmation_of_round))
        state.rows[row.candidate_id] = row
        ctx.observer.candidate(row, None)
        if row.decision.verdict is not Verdict.ACCEPTED:
            fallback = yield from _fallback(ctx, state, base, row, incumbent)
            if fallback is not None:
                incumbent, confirmation = fallback
            break
        incumbent, confirmation = row, confirmation_of_round
        _publish(ctx, state, base)
    report = _report(ctx, state, base, incumbent, confirmation)
    ctx.observer.report(report)
    winner = next((row for row in report.candidates if row.candidate_id == report.promoted), None)
    return CampaignEnd(report, winner, confirmation)


def _round(
    ctx: CampaignContext,
    state: _State,
    base: Baselines,
    round_: int,
    incumbent: CandidateResult | None,
) -> Generator[Phase, list[Any], CandidateResult | None]:
    """Proposes, evaluates and merges; the round's best row, None when nothing was accepted."""
    proposals = _propose(ctx, state, round_)
    if not proposals:
        ctx.observer.message(f"round {round_}: no explorer has anything left to propose")
        return None
    baseline = _baseline(ctx, base, incumbent)
    ctx.observer.phase(f"round {round_}: candidates", len(proposals))
    tasks = []
    for index, proposal in enumerate(proposals):
        candidate_id = f"r{round_}-{index:02d}-{proposal.mechanism}"
        state.changes[candidate_id] = proposal.change
        tasks.append(candidate_task(ctx, proposal, candidate_id, round_, baseline))
    results: list[CandidateResult | None] = yield Phase(
        f"round {round_}", tasks, lambda: _time_for_more(ctx)
    )
    for proposal, result in zip(proposals, results, strict=True):
        if result is None:
            state.notes.append(f"{proposal.mechanism} was not run: the budget is spent")
        else:
            state.rows[result.candidate_id] = result
    if (broken := _accepted_canaries(results)) is not None:
        state.notes.append(broken)
        ctx.observer.message(broken)
    _publish(ctx, state, base)
    if broken is not None:
        return None
    accepted = sorted(
        (
            row
            for row in results
            if row is not None
            and row.decision.verdict is Verdict.ACCEPTED
            and row.kind == "mechanism"
        ),
        key=lambda row: -(row.to_stock.ratio if row.to_stock else 0.0),
    )
    if not accepted:
        return None
    ctx.observer.phase(f"round {round_}: merging {len(accepted)} accepted", len(accepted) - 1)
    best, merges = yield from merge_accepted(ctx, accepted, state.changes, round_, baseline)
    state.competing |= {
        row.candidate_id for row in (*accepted, *merges) if row.decision.verdict is Verdict.ACCEPTED
    }
    for row in merges:
        state.rows[row.candidate_id] = row
    return best


def _accepted_canaries(results: Sequence[CandidateResult | None]) -> str | None:
    """What is wrong when the gate let a planted candidate through; None when it did not."""
    names = [
        row.planted or row.mechanism
        for row in results
        if row is not None
        and row.kind.startswith("canary")
        and row.decision.verdict is Verdict.ACCEPTED
    ]
    if not names:
        return None
    return (
        f"{', '.join(names)} was planted and accepted: this campaign's verdicts cannot be "
        "trusted, nothing is promoted"
    )


def _left_out(ctx: CampaignContext) -> list[str]:
    """What the explorers know and this setting cannot use, in the report's words."""
    context = ExplorerContext(ctx.setting, 1, (), ctx.has_compiler)
    passed_over = left_out(ctx.explorers, context).items()
    return [f"{name} is not for this setting: {why}" for name, why in passed_over]


def _propose(ctx: CampaignContext, state: _State, round_: int) -> list[Proposal]:
    evidence = [
        Evidence(
            row.mechanism,
            row.decision.verdict.value,
            None if row.to_stock is None else row.to_stock.ratio,
        )
        for row in state.rows.values()
        if not row.kind.startswith("canary")
    ]
    context = ExplorerContext(ctx.setting, round_, evidence, ctx.has_compiler)
    proposals = [p for explorer in ctx.explorers for p in explorer.propose(context)]
    canaries = ctx.canaries[: ctx.options.canaries] if round_ == 1 else ()
    return _interleave(proposals, canaries, ctx.seed)


def _interleave(
    proposals: Sequence[Proposal], canaries: Sequence[Proposal], seed: int
) -> list[Proposal]:
    """Canaries at places the seed picks, among the first half so that no budget drops them."""
    places, mixed = random.Random(seed), list(proposals)
    for canary in canaries:
        mixed.insert(places.randrange(len(proposals) // 2 + 1), canary)
    return mixed


def _baseline(ctx: CampaignContext, base: Baselines, incumbent: CandidateResult | None) -> Baseline:
    if incumbent is None:
        return Baseline(
            ctx.stock,
            ctx.stock_name,
            "stock",
            None,
            base.stock_to_ar,
            base.floor,
            base.calibration,
            base.untrusted,
            ctx.statistics.least_acceptable(base.floor),
        )
    tree: TreeLike = _Tree(incumbent.tree_hash, incumbent.commit)
    name = f"{ctx.setting.engine.name}-{incumbent.tree_hash[:12]}"
    return Baseline(
        tree,
        name,
        "final",
        incumbent.heldout_to_stock or incumbent.to_stock,
        base.stock_to_ar,
        base.floor,
        base.calibration,
        base.untrusted,
        ctx.statistics.least_acceptable(base.floor),
    )


@dataclass(frozen=True)
class _Tree:
    tree_hash: str
    commit: str


def _fallback(
    ctx: CampaignContext,
    state: _State,
    base: Baselines,
    failed_row: CandidateResult,
    incumbent: CandidateResult | None,
) -> Generator[Phase, list[Any], tuple[CandidateResult, Confirmation] | None]:
    """When a merge does not hold on held-out prompts, its best single member gets one chance."""
    singles = sorted(
        (
            row
            for row in state.rows.values()
            if row.decision.verdict is Verdict.ACCEPTED
            and row.kind == "mechanism"
            and row.round == failed_row.round
        ),
        key=lambda row: -(row.to_stock.ratio if row.to_stock else 0.0),
    )
    if failed_row.kind != "merge" or not singles:
        return None
    state.level = confirmation_confidence(len(state.competing))
    confirmation = yield from confirm(ctx, singles[0], base, state.level)
    row = _above(incumbent, confirmed_row(singles[0], confirmation))
    state.rows[row.candidate_id] = row
    ctx.observer.candidate(row, None)
    return (row, confirmation) if row.decision.verdict is Verdict.ACCEPTED else None


def _above(incumbent: CandidateResult | None, row: CandidateResult) -> CandidateResult:
    """`row`, no longer accepted where on held-out prompts it is not above the incumbent: being
    faster than stock is not enough to take its place."""
    held = None if incumbent is None else incumbent.heldout_to_stock
    new = row.heldout_to_stock
    if held is None or new is None or new.ratio > held.ratio:
        return row
    if row.decision.verdict is not Verdict.ACCEPTED:
        return row
    reason = (
        f"on held-out prompts: x{new.ratio:.3f} to {new.baseline} is not above the incumbent's "
        f"x{held.ratio:.3f}"
    )
    return replace(row, decision=Decision(Verdict.NOT_FASTER, reason, row.decision.evidence))


def _time_for_more(ctx: CampaignContext) -> bool:
    reserved = _RESERVED_MEASUREMENTS * ctx.setting.measurement.seconds_per_candidate
    return ctx.time_left() > min(reserved, ctx.options.budget_s / 2)


def _publish(ctx: CampaignContext, state: _State, base: Baselines) -> None:
    ctx.observer.report(_report(ctx, state, base, None, None))


def _report(
    ctx: CampaignContext,
    state: _State,
    base: Baselines,
    winner: CandidateResult | None,
    confirmation: Confirmation | None,
) -> CampaignReport:
    return CampaignReport(
        campaign_id=ctx.campaign_id,
        setting=ctx.setting.name,
        stock_tree=ctx.stock.tree_hash,
        started_utc=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(ctx.started)),
        machine=dict(ctx.machine),
        aa=base.aa,
        aa_floor=base.floor,
        ar_to_reference=base.ar_to_reference,
        stock_to_ar=(confirmation.stock_to_ar if confirmation else None) or base.stock_to_ar,
        final_to_stock=confirmation.to_stock if confirmation else None,
        final_to_ar=confirmation.to_ar if confirmation else None,
        candidates=with_shrunken(state.rows.values()),
        promoted=None if winner is None else winner.candidate_id,
        notes=tuple(state.notes),
        candidates_screened=sum(row.to_stock is not None for row in state.rows.values()),
        confirmation_confidence=state.level,
    )
