"""The memory explorer keeps the contract, on a catalogue of its own and on the shipped one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from engines.tree_store import TreeStore
from explorers.conformance import ExplorerConformance
from explorers.memory_explorer import CANARIES, CATALOGUE, MemoryExplorer, canary_proposals
from explorers.protocol import Evidence, Explorer, ExplorerContext
from explorers.registry import make_explorer
from farm.campaign.options import MOST_CANARIES
from settings.errors import SpecfarmError
from settings.loading import load_setting

SETTING = load_setting("cpu_c1_smollm2-135m_ngram")
CONTEXT = ExplorerContext(SETTING, 1, (), True)

TEXT = """
name = "{name}"
component = "draft"
hypothesis = "why"
{more}
[predicted]
speed_ratio = 1.1
reason = "because"
[knobs]
"speculation.draft_tokens" = 5
"""


def write(root: Path, name: str, more: str = "") -> None:
    (root / name).mkdir(parents=True)
    (root / name / "mechanism.toml").write_text(TEXT.format(name=name, more=more))


@pytest.fixture
def catalogue(tmp_path: Path) -> Path:
    write(tmp_path, "late", "priority = 90")
    write(tmp_path, "early", "priority = 10")
    write(tmp_path, "middle_b")
    write(tmp_path, "middle_a")
    write(tmp_path, "second", "round = 2")
    write(tmp_path, "gpu", 'preconditions = { hardware = ["h100"] }')
    write(tmp_path, "cpp", "preconditions = { compiler = true }")
    return tmp_path


class TestOwnCatalogue(ExplorerConformance):
    @pytest.fixture(autouse=True)
    def _folder(self, catalogue: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
        self.catalogue = catalogue
        self.store = TreeStore(tmp_path_factory.mktemp("trees"))

    def explorer(self) -> Explorer:
        return MemoryExplorer(self.catalogue)

    def context(self) -> ExplorerContext:
        return CONTEXT

    def base(self) -> tuple[TreeStore, str]:
        files = {"engine.toml": b"[speculation]\ndraft_tokens = 7\n"}
        source = self.catalogue.parent / f"{self.catalogue.name}-stock"
        source.mkdir(exist_ok=True)
        for name, content in files.items():
            (source / name).write_bytes(content)
        return self.store, self.store.import_stock(source, "own").commit


def names(catalogue: Path, context: ExplorerContext) -> list[str]:
    return [p.mechanism for p in MemoryExplorer(catalogue).propose(context)]


def test_order_round_preconditions_and_evidence(catalogue: Path) -> None:
    first = ["early", "cpp", "middle_a", "middle_b", "late"]
    assert names(catalogue, CONTEXT) == first
    assert "cpp" not in names(catalogue, replace(CONTEXT, has_compiler=False))
    second = replace(
        CONTEXT, round=2, evidence=(Evidence("cpp", "crashed", None), Evidence("x", "y", 1.0))
    )
    assert names(catalogue, second) == ["early", "middle_a", "middle_b", "second", "late"]


def test_an_empty_or_missing_catalogue_proposes_nothing(tmp_path: Path) -> None:
    assert names(tmp_path, CONTEXT) == []
    assert names(tmp_path / "missing", CONTEXT) == []


def test_the_registry_knows_it() -> None:
    assert isinstance(make_explorer("memory"), MemoryExplorer)
    with pytest.raises(SpecfarmError, match=r"'oracle'.*Known: .*memory"):
        make_explorer("oracle")


def test_the_first_two_canaries_are_one_of_each() -> None:
    kinds = [proposal.kind for proposal in canary_proposals(2, seed=7)]
    assert kinds == ["canary_noop", "canary_lossy"]
    assert canary_proposals(0, seed=7) == []


def test_further_canaries_are_drawn_by_the_seed() -> None:
    names = {tuple(p.planted for p in canary_proposals(4, seed)) for seed in range(30)}
    assert len(names) > 5 and all(len(set(four)) == 4 for four in names)
    assert {four[:2] for four in names} == {("planted_noop", "planted_lossy")}
    everything = canary_proposals(MOST_CANARIES, seed=7)
    assert len(everything) == MOST_CANARIES == len(list(CANARIES.glob("*/mechanism.toml")))
    assert {p.kind for p in everything} == {"canary_noop", "canary_lossy", "canary_cheat"}


def test_a_canary_goes_by_a_name_that_says_nothing() -> None:
    for canary in canary_proposals(MOST_CANARIES, seed=7):
        shown = (canary.mechanism, canary.hypothesis)
        own = canary.planted.removeprefix("planted_")
        assert not any("plant" in text or own in text for text in shown)
    first, second = (canary_proposals(1, seed)[0].mechanism for seed in (1, 2))
    assert first != second
    assert CANARIES != CATALOGUE


@pytest.mark.parametrize("kind", ["dflash2", "dspark"])
def test_a_parallel_drafter_is_offered_nothing_that_is_for_prompt_lookup(kind: str) -> None:
    setting = load_setting(f"cpu_c1_smollm2-135m_{kind}")
    context = replace(CONTEXT, setting=setting)
    offered, for_lookup = names(CATALOGUE, context), names(CATALOGUE, CONTEXT)
    lookup_alone = {"longer_draft", "longest_suffix", "no_weak_matches"}
    lookup_alone |= {"static_table", "token_recycling"}
    assert lookup_alone <= set(for_lookup) and not lookup_alone & set(offered)
    assert "fused_cpp_ops" in offered
    left = MemoryExplorer(CATALOGUE).left_out(context)
    assert left["static_table"] == f"drafter is {kind}, needs ngram"
