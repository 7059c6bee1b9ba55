"""Every patch of the catalogue applies to the native engine as this checkout has it."""

from __future__ import annotations

from pathlib import Path

import pytest

from engines.tree_store import TreeStore
from explorers.mechanism import load_mechanism
from settings.paths import checkout_root

CATALOGUE = checkout_root() / "explorers/catalogue"
PATCHED = sorted(path.parent for path in CATALOGUE.glob("*/change.patch"))


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> TreeStore:
    return TreeStore(tmp_path_factory.mktemp("store"))


@pytest.mark.parametrize("folder", PATCHED, ids=lambda folder: folder.name)
def test_a_patch_of_the_catalogue_applies_to_stock(store: TreeStore, folder: Path) -> None:
    stock = store.import_stock(checkout_root() / "engines/native", "native").commit
    change = load_mechanism(folder).proposal(folder, "memory").change
    assert store.commit_patch(stock, change.patch, folder.name).commit != stock
