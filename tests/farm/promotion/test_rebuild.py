"""With the real tree store: what was exported makes the promoted tree again, by plain git."""

import subprocess
from dataclasses import replace
from pathlib import Path

from engines.final_folder import rebuild_final
from engines.tree_store import TreeStore
from farm.promotion.export import export_final
from tests.farm.promotion.finals import evidence, winner
from tests.farm.report.samples import sample_report


def git(folder: Path, *args: str) -> str:
    done = subprocess.run(["git", *args], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_bundle_and_series_give_the_final_tree(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "engine.toml").write_text("k = 7\n")
    (source / "loop.py").write_text("STEPS = 1\n")
    store = TreeStore(tmp_path / "store")
    stock = store.import_stock(source, "native")
    first = store.commit_knobs(stock.commit, {"k": 11})
    final = store.commit_files(first.commit, {"loop.py": b"STEPS = 2\n"}, "Take two steps\n\nWhy.")
    report = replace(sample_report(), stock_tree=stock.tree_hash)
    best = replace(winner(report), tree_hash=final.tree_hash, commit=final.commit)
    folder = export_final(
        report, best, store, tmp_path / "final", evidence(stock_commit=stock.commit)
    )

    assert rebuild_final(folder, TreeStore(tmp_path / "other")).tree_hash == final.tree_hash

    plain = tmp_path / "plain"
    plain.mkdir()
    git(plain, "init", "-q")
    git(plain, "fetch", "-q", str(folder / "stock.bundle"), "refs/*:refs/bundle/*")
    git(plain, "checkout", "-q", stock.commit)
    patches = sorted((folder / "patches").iterdir())
    assert [p.name for p in patches][1] == "0002-take-two-steps.patch"
    for patch in patches:
        git(plain, "apply", "--index", str(patch))
    assert git(plain, "write-tree") == final.tree_hash
