"""Every patch of the corpus is what its manifest says: it applies to stock, or is refused; the
lossy ones do commit other tokens when nobody guards."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from engines.errors import TreeRefused
from engines.patch_policy import PatchPolicy
from engines.registry import engine_driver
from engines.tree_store import TreeStore
from settings.random_model import write_random_llama
from tests.cheats.corpus import REAL, ROOT, TINY, Entry, corpus
from tests.cheats.tiny_model import Answers, answers

ALL = {entry.name: entry for setting in (TINY, REAL) for entry in corpus(setting)}
WITH_PATCH = [entry for entry in ALL.values() if entry.change]
TINY_MODEL = ROOT.parents[0] / "data" / "settings" / "tiny" / "model"
# What these change lies in the HTTP layer.
OVER_HTTP = {"28-ignores_ignore_eos"}


@pytest.fixture(scope="module")
def stock(tmp_path_factory: pytest.TempPathFactory) -> tuple[TreeStore, str]:
    driver = engine_driver("native")
    policy = PatchPolicy(setting_owned_keys=driver.setting_owned_keys)
    store = TreeStore(tmp_path_factory.mktemp("trees"), policy=policy)
    return store, store.import_stock(driver.stock_source(), "native").commit


@pytest.mark.parametrize("entry", WITH_PATCH, ids=str)
def test_it_applies_or_is_refused(entry: Entry, stock: tuple[TreeStore, str]) -> None:
    store, commit = stock
    if entry.verdicts == {"refused"}:
        with pytest.raises(TreeRefused):
            store.commit_patch(commit, entry.change, entry.name)
    else:
        tree = store.commit_patch(commit, entry.change, entry.name)
        assert store.diff(commit, tree.commit)


def test_every_patch_has_its_entry_and_every_name_is_one() -> None:
    files = {path for path in (ROOT / "patches").glob("*.patch")}
    assert files == {e.patch for e in ALL.values() if e.patch and e.patch.parent.name == "patches"}
    assert len({entry.patch for entry in WITH_PATCH}) == len(WITH_PATCH)


def test_the_corpus_is_large_enough_and_has_controls() -> None:
    cheats = [entry for entry in ALL.values() if not entry.control]
    assert len(cheats) >= 28 and len(ALL) - len(cheats) >= 5


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Random weights that repeat themselves, so that drafts are accepted."""
    folder = tmp_path_factory.mktemp("model")
    config = json.loads((TINY_MODEL / "config.json").read_text())
    config |= {"initializer_range": 0.12, "max_position_embeddings": 2048}
    (folder / "config").mkdir()
    (folder / "config" / "config.json").write_text(json.dumps(config))
    write_random_llama(folder / "config", 7, folder)
    return folder


@pytest.fixture(scope="module")
def stocks_answers(stock: tuple[TreeStore, str], model: Path) -> Answers:
    store, commit = stock
    return answers(store.checkout(commit), model)


@pytest.mark.parametrize(
    "entry", [e for e in corpus(TINY) if e.lossy and e.name not in OVER_HTTP], ids=str
)
def test_unguarded_a_lossy_one_answers_otherwise(
    entry: Entry, stock: tuple[TreeStore, str], model: Path, stocks_answers: Answers
) -> None:
    store, commit = stock
    tree = store.commit_patch(commit, entry.change, entry.name)
    assert answers(store.checkout(tree.commit), model) != stocks_answers


@pytest.mark.parametrize("name", ["91-rename", "93-reordered_sums", "95-smaller_chunks"])
def test_an_honest_one_answers_as_stock_does(
    name: str, stock: tuple[TreeStore, str], model: Path, stocks_answers: Answers
) -> None:
    store, commit = stock
    tree = store.commit_patch(commit, ALL[name].change, name)
    assert answers(store.checkout(tree.commit), model) == stocks_answers
