"""Explorers by name, one's own among them, and what they say they pass over."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from explorers import registry
from explorers.memory_explorer import MemoryExplorer
from explorers.protocol import ExplorerContext, Proposal
from explorers.registry import make_explorer, register_explorer
from explorers.selection import left_out
from settings.errors import SpecfarmError
from settings.loading import load_setting

CONTEXT = ExplorerContext(load_setting("cpu_c1_smollm2-135m_ngram"), 1, (), True)


class Mine:
    """Proposes nothing and passes nothing over."""

    name = "mine"

    def propose(self, context: ExplorerContext) -> Sequence[Proposal]:
        return []


@pytest.fixture(autouse=True)
def _restored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_FACTORIES", dict(registry._FACTORIES))


def test_a_registered_explorer_is_made_anew_each_time() -> None:
    register_explorer("mine", Mine)
    one, other = make_explorer("mine"), make_explorer("mine")
    assert isinstance(one, Mine) and one is not other
    assert isinstance(make_explorer("memory"), MemoryExplorer)


def test_a_name_may_be_taken_over() -> None:
    register_explorer("memory", Mine)
    assert isinstance(make_explorer("memory"), Mine)


def test_an_unknown_name_gets_the_nearest_and_all() -> None:
    register_explorer("mine", Mine)
    with pytest.raises(
        SpecfarmError, match=r"'memry' is not an explorer\. Did you mean 'memory'\? .*memory, mine"
    ):
        make_explorer("memry")


def test_a_factory_that_fails_is_not_an_unknown_name() -> None:
    def broken() -> Mine:
        raise KeyError("its own trouble")

    register_explorer("broken", broken)
    with pytest.raises(KeyError, match="its own trouble"):
        make_explorer("broken")


def test_what_the_setting_cannot_use_is_passed_over_aloud() -> None:
    elsewhere = left_out([MemoryExplorer(), Mine()], CONTEXT)
    assert elsewhere["twelve_bit_weights"] == "hardware is cpu, needs h100 or h200"
    assert not any("compiler" in why for why in elsewhere.values())
    bare = replace(CONTEXT, has_compiler=False)
    everything = left_out([MemoryExplorer(), Mine()], bare)
    found = {name: why for name, why in everything.items() if name not in elsewhere}
    assert found and all("needs a C++ compiler" in why for why in found.values())
    proposed = {p.mechanism for p in MemoryExplorer().propose(bare)}
    assert not proposed & everything.keys()
