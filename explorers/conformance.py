"""What every explorer must hold to: subclass `ExplorerConformance`, say how to make one.

    class TestMine(ExplorerConformance):
        def explorer(self) -> Explorer: return Mine()
        def context(self) -> ExplorerContext: ...

Give a `store` and `stock` commit to have every proposed change applied. Run by pytest; imports
nothing of it, so that it ships with the package.
"""

from __future__ import annotations

import math
import tomllib
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from engines.tree_store import TreeStore
from explorers.protocol import Evidence, Explorer, ExplorerContext, Proposal


class ExplorerConformance(ABC):
    """The contract of `Explorer`, as tests."""

    @abstractmethod
    def explorer(self) -> Explorer:
        """A new explorer, the same each time."""

    @abstractmethod
    def context(self) -> ExplorerContext:
        """Round 1 of a deployment it has something to propose for; no evidence yet."""

    def base(self) -> tuple[TreeStore, str] | None:
        """A store and the commit changes must apply to; None skips applying them."""
        return None

    def proposals(self, context: ExplorerContext | None = None) -> list[Proposal]:
        return list(self.explorer().propose(context or self.context()))

    def test_it_proposes_something(self) -> None:
        assert self.proposals(), "nothing to propose for the deployment of context()"

    def test_it_has_a_name_and_signs_with_it(self) -> None:
        explorer = self.explorer()
        assert explorer.name
        assert all(p.explorer == explorer.name for p in self.proposals())

    def test_equal_contexts_give_equal_proposals(self) -> None:
        explorer = self.explorer()
        first = list(explorer.propose(self.context()))
        assert list(explorer.propose(self.context())) == first, "asking changed its mind"
        assert self.proposals() == first, "another instance proposes otherwise"

    def test_names_are_unique(self) -> None:
        names = [p.mechanism for p in self.proposals()]
        assert len(names) == len(set(names)), names

    def test_nothing_tried_is_proposed_again(self) -> None:
        context, tried = self.context(), list[Evidence]()
        verdicts = ("accepted", "not_faster", "not_lossless", "crashed", "conflict")
        for count, proposal in enumerate(self.proposals()):
            tried.append(Evidence(proposal.mechanism, verdicts[count % len(verdicts)], None))
            known = {item.mechanism for item in tried}
            again = self.proposals(replace(context, evidence=tuple(tried)))
            assert not known & {p.mechanism for p in again}

    def test_predictions_are_made_and_positive(self) -> None:
        for proposal in self.proposals():
            ratio = proposal.prediction.speed_ratio
            assert math.isfinite(ratio) and ratio > 0, proposal.mechanism
            assert proposal.prediction.reason.strip(), proposal.mechanism

    def test_every_proposal_says_what_it_is_and_changes_something(self) -> None:
        for proposal in self.proposals():
            assert proposal.change.patch or proposal.change.knobs, proposal.mechanism
            assert proposal.kind == "mechanism", "only the farm plants canaries"
            assert proposal.component.strip() and proposal.hypothesis.strip(), proposal.mechanism

    def test_changes_apply(self) -> None:
        base = self.base()
        if base is None:
            return
        for proposal in self.proposals():
            applied(*base, proposal)


def applied(store: TreeStore, stock: str, proposal: Proposal) -> str:
    """The commit `proposal` makes on `stock`.

    Raises:
        PatchConflict, TreeRefused: as the store says.
        AssertionError: nothing changed, or a knob is no key of the tree's engine.toml.
    """
    commit, change = stock, proposal.change
    if change.patch:
        commit = store.commit_patch(commit, change.patch, proposal.mechanism).commit
    known = engine_keys(tomllib.loads(store.read_file(commit, "engine.toml").decode()))
    unknown = set(change.knobs) - known.keys()
    assert not unknown, f"{proposal.mechanism}: {unknown} not in engine.toml ({sorted(known)})"
    if change.knobs:
        commit = store.commit_knobs(commit, change.knobs).commit
    assert store.diff(stock, commit), f"{proposal.mechanism} changes nothing"
    return commit


def engine_keys(table: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Dotted key -> value of every leaf of an engine.toml."""
    found: dict[str, Any] = {}
    for key, value in table.items():
        if isinstance(value, Mapping):
            found |= engine_keys(value, f"{prefix}{key}.")
        else:
            found[f"{prefix}{key}"] = value
    return found
