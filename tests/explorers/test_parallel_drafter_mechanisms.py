"""Mechanisms for parallel drafters: each changes what is drafted and never what is committed."""

from __future__ import annotations

import itertools
import re
import shutil
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch

from engines.knobs import KnobValue
from engines.training.shards import Shard, write_shard
from engines.tree_store import TreeStore
from explorers.catalogue.reduced_draft_vocabulary import make_ids
from explorers.mechanism import load_mechanism
from explorers.memory_explorer import CATALOGUE
from native_engine.requests import GenerateRequest
from settings.paths import checkout_root
from tests.engines.native.drafters.test_single import KINDS, prompt_of, write_drafter
from tests.engines.native.tiny import VOCAB, make_folder, reference_greedy
from tests.explorers.test_fused_cpp_ops import import_tree

MECHANISMS = (
    "reduced_draft_vocabulary",
    "confident_block_length",
    "block_length_by_recent_acceptance",
    "ngram_where_it_repeats",
)
FUSED = ("fused_cpp_ops", "fused_draft_ops")
NEW_TOKENS = 40
DRAFTED = [*range(2, 30), 41, 60, 61, 62]


class Totals(NamedTuple):
    steps: int
    drafted: int


def patch_of(name: str) -> str:
    folder = CATALOGUE / name
    return load_mechanism(folder).proposal(folder, "memory").change.patch


class Trees:
    """Stock as a setting of each drafter has it, and what mechanisms make of it."""

    def __init__(self, folder: Path) -> None:
        self.store = TreeStore(folder)
        base = self.store.import_stock(checkout_root() / "engines/native", "native").commit
        self.stock = {}
        for name in KINDS:
            knobs: dict[str, KnobValue] = {"speculation.drafter": name}
            self.stock[name] = self.store.commit_knobs(base, knobs).commit

    def merged(self, name: str, *mechanisms: str) -> str:
        commit = self.stock[name]
        for mechanism in mechanisms:
            commit = self.store.commit_patch(commit, patch_of(mechanism), mechanism).commit
        return commit


@dataclass
class World:
    """A tiny target with its transformers model, a drafter of each kind, and the trees."""

    folder: Path
    model: Any
    trees: Trees
    known: dict[int, list[int]] = field(default_factory=dict)

    def engine(self, name: str, *mechanisms: str, drafted: str = "") -> Any:
        """The merged tree's engine; `drafted`: the vocabulary's list, in place of its own."""
        tree = self.trees.store.checkout(self.trees.merged(name, *mechanisms))
        engine, *vocabulary = import_tree(tree, "engine", *["drafters.vocabulary"] * bool(drafted))
        for module in vocabulary:
            module.COLUMNS = 1
            module.TOKENS = self.folder / "drafted.txt"
            module.TOKENS.write_text(drafted)
        knobs = engine.EngineConfig.from_file(tree / "engine.toml")
        where = str(self.folder / name)
        return engine.load_engine(self.folder, knobs, "fp32", 160, draft_model_dir=where)

    def truth(self, length: int) -> list[int]:
        if length not in self.known:
            ids = list(prompt_of(length))
            self.known[length] = reference_greedy(self.model, ids, NEW_TOKENS)
        return self.known[length]

    def answer(self, engine: Any) -> Totals:
        """After prompts of several lengths: transformers' tokens, all of them."""
        results = []
        for length in (1, 12, 33):
            request = GenerateRequest("r", prompt_of(length), NEW_TOKENS)
            results.append(engine.run(request))
            assert results[-1].output_ids == self.truth(length)
        return Totals(*(sum(getattr(r, key) for r in results) for key in ("steps", "drafted")))


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    folder = tmp_path_factory.mktemp("target")
    model = make_folder(folder)
    for name, raw in KINDS.items():
        write_drafter(folder / name, raw)
    return World(folder, model, Trees(tmp_path_factory.mktemp("trees")))


def block_drafter(engine: Any) -> Any:
    """The BlockDrafter below whatever wraps it."""
    drafter = engine.decoder.drafter
    while hasattr(drafter, "inner"):
        drafter = drafter.inner
    return drafter


def recorded(engine: Any) -> dict[tuple[int, ...], list[int]]:
    """Context -> draft, of every draft step that follows."""
    inner, found = block_drafter(engine), {}
    propose = inner.propose

    def record(asks: Any) -> Any:
        proposal = propose(asks)
        found[tuple(asks[0].context_ids)] = proposal.tokens[0]
        return proposal

    inner.propose = record
    return found


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_tokens_are_transformers(world: World, mechanism: str, name: str) -> None:
    assert world.answer(world.engine(name, mechanism)).drafted > 0


@pytest.mark.parametrize("name", KINDS)
def test_tokens_of_list_and_prompt_are_drafted_and_the_best_of_them(
    world: World, name: str
) -> None:
    """As stock drafts when the logit of every other token is minus infinity."""
    engine, stock = (
        world.engine(name, MECHANISMS[0], drafted=make_ids.listing(DRAFTED)),
        world.engine(name),
    )
    ours, theirs, inner = recorded(engine), recorded(stock), block_drafter(stock)
    whole, others = inner._head, torch.zeros(VOCAB, dtype=torch.bool)
    inner._head = lambda x: whole(x).masked_fill(others, -torch.inf)
    for length in (25, 1, 12):
        wanted = {*DRAFTED, *prompt_of(length), world.truth(length)[0]}
        others[:] = torch.tensor([token not in wanted for token in range(VOCAB)])
        for found in (engine, stock):
            result = found.run(GenerateRequest("r", prompt_of(length), NEW_TOKENS))
            assert result.output_ids == world.truth(length)
    assert ours == theirs and len(ours) > 50
    assert len(set().union(*ours.values()) - set(DRAFTED)) > 3


@pytest.mark.parametrize("name", KINDS)
def test_unsure_drafts_are_cut(world: World, name: str) -> None:
    stock, engine = world.engine(name), world.engine(name, "confident_block_length")
    inner = block_drafter(engine)
    assert inner._schedule is not None
    inner._schedule = lambda sure: [
        next((i for i, c in enumerate(s) if c < 0.8), len(s)) for s in sure
    ]
    theirs, ours = recorded(stock), recorded(engine)
    before, after = world.answer(stock), world.answer(engine)
    assert after.drafted < before.drafted
    both = ours.keys() & theirs.keys()
    assert len(both) > 10 and all(theirs[c][: len(ours[c])] == ours[c] for c in both)


def test_a_candidates_share_is_its_softmax(world: World) -> None:
    """Slot by slot along the path, in FP64, as the equation of CandidateSelector says."""
    engine = world.engine("dflash", "confident_block_length")
    inner, checked = block_drafter(engine), list[float]()
    selector, said = inner._selector, list[float]()
    select = selector.select

    def check(unary: Any, hidden: Any, anchors: Any, asks: Any, schedule: Any, idle: int) -> Any:
        def keep(sure: list[list[float]]) -> list[int]:
            said[:] = sure[0]
            return [len(s) for s in sure]

        proposal = select(unary, hidden, anchors, asks, keep, idle)
        before = int(anchors[0])
        first, last = selector._predecessor.double(), selector._successor.double()
        for t, token in enumerate(proposal.tokens[0]):
            best = unary[0, t].double().topk(selector._top_k)
            gate = selector._projection(hidden[0, t][None])[0].double()
            scores = best.values + last[best.indices] @ (first[before] * gate)
            shares = scores.softmax(-1)
            assert int(best.indices[shares.argmax()]) == token
            checked.append(abs(float(shares.max()) - said[t]))
            before = token
        return proposal

    selector.select = check
    world.answer(engine)
    assert len(checked) > 100 and max(checked) < 1e-4


@pytest.mark.parametrize("name", KINDS)
def test_drafts_shrink_where_they_fail_and_grow_where_they_hold(world: World, name: str) -> None:
    engine = world.engine(name, "block_length_by_recent_acceptance")
    inner, asked = block_drafter(engine), list[int]()
    text, propose = [*prompt_of(12), *world.truth(12)], inner.propose

    def scripted(asks: Any) -> Any:
        asked.append(inner.limit(asks[0]))
        proposal = propose(asks)
        at = len(asks[0].context_ids)
        right = text[at : at + asked[-1]]
        wrong = [(token + 1) % VOCAB for token in right]
        return replace(proposal, tokens=[right if len(asked) > 6 else wrong])

    inner.propose = scripted
    result = engine.run(GenerateRequest("r", prompt_of(12), 30))
    assert result.output_ids == world.truth(12)[:30]
    most = inner.draft_tokens
    assert asked[0] == most and asked[5] == 3 and asked[8] == most, asked


@pytest.mark.parametrize("name", KINDS)
def test_a_long_match_is_copied(world: World, name: str) -> None:
    engine = world.engine(name, "ngram_where_it_repeats")
    drafted = recorded(engine)
    text = [*prompt_of(12), *world.truth(12)]
    prompt = tuple([*text, *text[:20]])
    result = engine.run(GenerateRequest("r", prompt, 20))
    assert result.output_ids == reference_greedy(world.model, list(prompt), 20)
    assert 0 < len(drafted) < result.steps
    assert not any(tuple(c[-4:]) in windows(c[:-1]) for c in drafted)


def windows(ids: tuple[int, ...]) -> set[tuple[int, ...]]:
    return {ids[i : i + 4] for i in range(len(ids) - 3)}


def test_they_merge_all_in_one_tree(world: World) -> None:
    everything = (*MECHANISMS, *FUSED)
    world.trees.merged("dflash", *everything)
    world.trees.merged("dspark", *everything[::-1])


@pytest.mark.slow
def test_any_two_merge_in_any_order(world: World) -> None:
    for pair in itertools.permutations((*MECHANISMS, *FUSED), 2):
        world.trees.merged("dflash", *pair)


@pytest.mark.parametrize("name", KINDS)
def test_all_together(world: World, name: str) -> None:
    world.answer(world.engine(name, *MECHANISMS))


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
@pytest.mark.parametrize("name", KINDS)
def test_all_together_and_fused(world: World, name: str) -> None:
    engine = world.engine(name, *FUSED, *MECHANISMS)
    assert engine.model.fused is not None
    world.answer(engine)


def test_the_list_of_drafted_tokens_is_made_by_its_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The patch around the list stays as it is, and still applies."""
    shard = Shard.of(
        [[9, 9, 700], [1, 700, 701, 705], [3, 701], [3, 9]], [1, 1, 1, 2], [0] * 4, ("a",)
    )
    write_shard(tmp_path / "shard-00000.safetensors", shard)
    patch = tmp_path / "change.patch"
    patch.write_text(patch_of(MECHANISMS[0]))
    monkeypatch.setattr(make_ids, "PATCH", patch)
    monkeypatch.setattr("sys.argv", ["make_ids", str(tmp_path), "--count", "5"])
    make_ids.main()
    assert "5 tokens from 4; 0.5000 of 2 held back" in capsys.readouterr().out
    text = patch.read_text()
    assert "+0-1 700-701 705\n" in text
    original = patch_of(MECHANISMS[0])
    strip = re.compile(r"diff --git a/\S+drafted_tokens.txt (?s:.)*?(?=diff --git)")
    assert strip.sub("", text) == strip.sub("", original) and len(text) < len(original)
    store = TreeStore(tmp_path / "trees")
    base = store.import_stock(checkout_root() / "engines/native", "native").commit
    store.commit_patch(base, text, "shorter")
