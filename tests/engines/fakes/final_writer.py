"""Writes the smallest final folder by the format's own words, independent of the farm's export."""

import json
from pathlib import Path

from engines.tree_store import Tree, TreeStore


def write_final(folder: Path, store: TreeStore, stock: Tree, final: Tree, **facts: str) -> None:
    (folder / "patches").mkdir(parents=True)
    (folder / "stock.bundle").write_bytes(store.bundle(stock.commit))
    for number, patch in enumerate(store.patch_series(stock.commit, final.commit), 1):
        (folder / "patches" / f"{number:04}-x.patch").write_text(patch)
    (folder / "engine.lock").write_text(
        'setting = "fake"\nengine = "fake"\n'
        f'stock_tree = "{stock.tree_hash}"\nstock_commit = "{stock.commit}"\n'
        f'final_tree = "{final.tree_hash}"\nfinal_commit = "{final.commit}"\n'
        'harness = "0"\ncreated = "2026-01-01T00:00:00Z"\nschema_version = 1\n'
    )
    (folder / "certificate.json").write_text(json.dumps(facts))
