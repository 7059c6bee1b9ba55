"""Which candidates are shrunk together; the composed ratio moves as far as the measured one."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from farm.campaign.shrink import with_shrunken
from farm.results import CandidateResult, RatioInterval
from farm.statistics.shrinkage import shrunken
from farm.verdicts import Decision, Verdict

HALF = 0.05


def interval(log_ratio: float, baseline: str) -> RatioInterval:
    ratio = math.exp(log_ratio)
    return RatioInterval(
        ratio, ratio * math.exp(-HALF), ratio * math.exp(HALF), baseline, 12, "made"
    )


def row(name: str, log_ratio: float, round_: int = 1, kind: str = "mechanism") -> CandidateResult:
    to_stock = log_ratio if round_ == 1 else log_ratio + 0.5
    return CandidateResult(
        candidate_id=name,
        mechanism=name,
        kind=kind,
        component="draft",
        round=round_,
        tree_hash="",
        commit="",
        patch="",
        decision=Decision(Verdict.INCONCLUSIVE, "made"),
        to_stock=interval(to_stock, "stock"),
        to_baseline=interval(log_ratio, "stock" if round_ == 1 else "incumbent"),
    )


def test_a_round_is_shrunk_on_what_was_measured_against_its_own_baseline() -> None:
    first = [row("a", 0.1), row("b", -0.02), row("c", 0.01)]
    second = [row("d", 0.08, 2), row("e", 0.0, 2), row("f", -0.05, 2)]
    found = with_shrunken([*first, *second])
    assert [r.candidate_id for r in found] == list("abcdef")
    error = HALF / 1.959964
    for logs, rows, incumbent in (
        ([0.1, -0.02, 0.01], found[:3], 0.0),
        ([0.08, 0.0, -0.05], found[3:], 0.5),
    ):
        wanted = shrunken(logs, [error] * 3)
        got = [math.log(r.ratio_shrunken) - incumbent for r in rows if r.ratio_shrunken]
        assert got == pytest.approx(wanted)


def test_planted_failed_and_lossy_candidates_are_left_out() -> None:
    honest = [row("a", 0.1), row("b", -0.02), row("c", 0.01)]
    cheat = replace(row("x", 3.0), decision=Decision(Verdict.CHEATING, "forged"))
    planted = row("p", 2.0, kind="canary_noop")
    unmeasured = replace(row("u", 0.0), to_stock=None, to_baseline=None)
    endless = replace(row("i", 0.0), to_baseline=replace(interval(0.0, "stock"), high=math.inf))
    alone = {r.candidate_id: r.ratio_shrunken for r in with_shrunken(honest)}
    found = {
        r.candidate_id: r.ratio_shrunken
        for r in with_shrunken([*honest, cheat, planted, unmeasured, endless])
    }
    assert {name: found[name] for name in "abc"} == alone
    assert [found[name] for name in "xpui"] == [None] * 4
