"""Merging accepted mechanisms: each one's change applied on the growing best, measured together."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from engines.errors import PatchConflict, TreeRefused
from explorers.protocol import Change, Prediction, Proposal
from farm.campaign.candidate import Baseline, commit_change, measure_and_verify
from farm.campaign.context import CampaignContext, TreeLike
from farm.campaign.scheduler import Phase
from farm.results import CandidateResult
from farm.verdicts import Decision, Verdict


def merge_accepted(
    ctx: CampaignContext,
    accepted: Sequence[CandidateResult],
    changes: Mapping[str, Change],
    round_: int,
    baseline: Baseline,
) -> Generator[Phase, list[Any], tuple[CandidateResult, list[CandidateResult]]]:
    """The best engine this round makes from `accepted` (best first), and the rows of all merges.

    All of them together are measured first: where that is accepted and its point estimate is above
    the best member's, it is the round's best. Otherwise they join one at a time, best first; a
    merge is kept while it is accepted itself and above the best so far. A change that does not
    apply on the others ends as `conflict`.
    """
    best, rows = accepted[0], []
    members = [best]
    together = _together(ctx, accepted, changes, round_)
    # Of two there is one merge in any case.
    if len(together.members) > 2 and together.tree is not None:
        merged: list[CandidateResult] = yield Phase(
            "merge",
            [_merge_task(ctx, together.members, together.tree, round_, baseline)],
            lambda: _time_to_merge(ctx),
        )
        if merged[0] is not None:
            rows.append(merged[0])
            if _better(merged[0], best):
                for row in together.conflicts:
                    ctx.observer.candidate(row, None)
                return merged[0], [*rows, *together.conflicts]
    for addition in accepted[1:]:
        try:
            tree = commit_change(
                ctx, best.commit, changes[addition.candidate_id], f"merge {addition.mechanism}"
            )
        except (PatchConflict, TreeRefused) as error:
            row = _conflict([*members, addition], round_, str(error))
            ctx.observer.candidate(row, None)
            rows.append(row)
            continue
        merged = yield Phase(
            "merge",
            [_merge_task(ctx, [*members, addition], tree, round_, baseline)],
            lambda: _time_to_merge(ctx),
        )
        if merged[0] is None:
            ctx.observer.message(f"{addition.mechanism} was not merged: the budget is spent")
            break
        rows.append(merged[0])
        if _better(merged[0], best):
            best = merged[0]
            members.append(addition)
    return best, rows


@dataclass(frozen=True)
class _Together:
    """All that apply on each other, best first; the tree that has them; those that did not."""

    members: list[CandidateResult]
    tree: TreeLike | None
    conflicts: list[CandidateResult]


def _together(
    ctx: CampaignContext,
    accepted: Sequence[CandidateResult],
    changes: Mapping[str, Change],
    round_: int,
) -> _Together:
    members, conflicts = [accepted[0]], list[CandidateResult]()
    tree: TreeLike | None = None
    for addition in accepted[1:]:
        commit = accepted[0].commit if tree is None else tree.commit
        try:
            tree = commit_change(
                ctx, commit, changes[addition.candidate_id], f"merge {addition.mechanism}"
            )
        except (PatchConflict, TreeRefused) as error:
            conflicts.append(_conflict([*members, addition], round_, str(error)))
            continue
        members.append(addition)
    return _Together(members, tree, conflicts)


def _merge_task(
    ctx: CampaignContext,
    members: Sequence[CandidateResult],
    tree: TreeLike,
    round_: int,
    baseline: Baseline,
) -> Any:
    names = _names(members)
    proposal = Proposal(
        mechanism=names,
        component="merge",
        hypothesis=f"{names} add up",
        change=Change(),
        prediction=Prediction(_product(members), "product of the members' ratios"),
        kind="merge",
        explorer="integrator",
    )
    candidate_id = f"r{round_}-merge-{len(members)}-{tree.tree_hash[:6]}"
    return measure_and_verify(
        ctx, proposal, candidate_id, round_, tree, baseline, ctx.prompts.search
    )


def _names(members: Sequence[CandidateResult]) -> str:
    return "+".join(member.mechanism for member in members)


def _conflict(members: Sequence[CandidateResult], round_: int, reason: str) -> CandidateResult:
    return CandidateResult(
        candidate_id=f"r{round_}-merge-{len(members)}-{members[-1].mechanism}",
        mechanism=_names(members),
        kind="merge",
        component="merge",
        round=round_,
        tree_hash="",
        commit="",
        patch=members[-1].patch,
        decision=Decision(Verdict.CONFLICT, reason, {"caught_by": "merge"}),
        hypothesis=f"{_names(members)} add up",
    )


def _time_to_merge(ctx: CampaignContext) -> bool:
    """Whether confirmation keeps its share of the budget."""
    measurement = ctx.setting.measurement
    reserved = measurement.launches_confirm * measurement.seconds_per_candidate
    return ctx.time_left() > min(reserved, ctx.options.budget_s / 4)


def _product(members: Sequence[CandidateResult]) -> float:
    product = 1.0
    for member in members:
        product *= member.to_stock.ratio if member.to_stock else 1.0
    return product


def _better(merged: CandidateResult, best: CandidateResult) -> bool:
    return (
        merged.decision.verdict is Verdict.ACCEPTED
        and merged.to_stock is not None
        and (best.to_stock is None or merged.to_stock.ratio > best.to_stock.ratio)
    )
