"""Planted candidates in a campaign: hidden from explorers, told apart by the report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from explorers.protocol import ExplorerContext, Proposal
from farm.campaign.flow import _interleave
from farm.report.words import canary_line, label
from tests.farm.campaign.simulation import Effect, Farm, World, proposal


def planted(name: str, kind: str) -> Proposal:
    return replace(proposal(name, kind), mechanism=f"draft_variant_{name}", planted=name)


class Watcher:
    """Proposes by the round and keeps what it was shown."""

    name = "watcher"

    def __init__(self, rounds: dict[int, list[Proposal]]) -> None:
        self.rounds = rounds
        self.seen: list[str] = []

    def propose(self, context: ExplorerContext) -> Sequence[Proposal]:
        self.seen += [item.mechanism for item in context.evidence]
        return self.rounds.get(context.round, [])


def test_explorers_and_progress_never_hear_of_them(tmp_path: Path) -> None:
    world = World({"a": Effect(1.2), "b": Effect(1.1), "noop": Effect(1.0)})
    canaries = [planted("noop", "canary_noop")]
    farm = Farm(tmp_path, world, {1: [], 2: []}, canaries=canaries)
    watcher = Watcher({1: [proposal("a")], 2: [proposal("b")]})
    assert isinstance(farm.context.explorers, list)
    farm.context.explorers[:] = [watcher]
    end = farm.run()
    assert set(watcher.seen) == {"a"}
    assert not any("noop" in m and "variant" not in m for m in farm.observer.messages)
    (row,) = (c for c in end.report.candidates if c.planted)
    assert row.mechanism == "draft_variant_noop"
    assert label(row) == "draft_variant_noop (planted: noop)"


def test_the_report_counts_false_accepts_and_false_rejects(tmp_path: Path) -> None:
    world = World({"a": Effect(1.2), "noop": Effect(1.0), "lossy": Effect(1.3, lossy=True)})
    canaries = [planted("noop", "canary_noop"), planted("lossy", "canary_lossy")]
    end = Farm(tmp_path, world, {1: [proposal("a")]}, canaries=canaries).run()
    assert canary_line(end.report) == "canaries: 2 planted, 0 false accepts, 0 false rejects"


def test_an_accepted_cheat_and_a_refused_honest_one_are_false(tmp_path: Path) -> None:
    world = World({"a": Effect(1.2), "noop": Effect(1.0, lossy=True), "memo": Effect(1.3)})
    canaries = [planted("noop", "canary_noop"), planted("memo", "canary_cheat")]
    end = Farm(tmp_path, world, {1: [proposal("a")]}, canaries=canaries).run()
    assert canary_line(end.report) == "canaries: 2 planted, 1 false accepts, 1 false rejects"
    assert any(note.startswith("memo was planted and accepted") for note in end.report.notes)


def test_without_canaries_the_report_is_silent(tmp_path: Path) -> None:
    end = Farm(tmp_path, World({"a": Effect(1.2)}), {1: [proposal("a")]}).run()
    assert canary_line(end.report) is None


def test_places_depend_on_the_seed_and_are_never_late() -> None:
    names = [proposal(str(n)) for n in range(10)]
    canaries = [planted("x", "canary_noop"), planted("y", "canary_lossy")]
    orders = set()
    for seed in range(40):
        order = [p.planted for p in _interleave(names, canaries, seed)]
        assert sorted(filter(None, order)) == ["x", "y"]
        assert max(order.index("x"), order.index("y")) <= len(names) // 2 + 1
        orders.add(tuple(order))
    assert len(orders) > 10
