"""The tree store against plain git commands."""

from __future__ import annotations

import os
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save

from engines.errors import EngineError, PatchConflict, TreeRefused
from engines.patch_policy import PatchPolicy
from engines.tree_store import TreeStore, verify_checkout

# The one kind of binary file a change may bring in.
BINARY = save({"draft": np.arange(64, dtype=np.float32)})
GIT_ENV = {
    **{k: v for k, v in os.environ.items() if not k.startswith("GIT_")},
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_NOSYSTEM": "1",
}


def git(folder: Path, *args: str, stdin: str | None = None) -> str:
    done = subprocess.run(
        ["git", *args],
        cwd=folder,
        env=GIT_ENV,
        input=stdin,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


def oracle_tree(folder: Path, scratch: Path) -> str:
    """git write-tree of a copy of the folder in a repository of its own."""
    shutil.copytree(folder, scratch, symlinks=True)
    git(scratch, "init", "-q")
    git(scratch, "-c", "core.autocrlf=false", "add", "-A", "-f", ".")
    return git(scratch, "write-tree")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    root = tmp_path / "source"
    (root / "pkg" / "deep").mkdir(parents=True)
    (root / "engine.toml").write_text('# knobs\nk = 4  # block\nname = "a#b"\n\n[draft]\nn = 2\n')
    (root / "pkg" / "a.py").write_text("".join(f"line {i}\n" for i in range(40)))
    (root / "pkg.txt").write_bytes(b"sorts around the folder\r\n")
    (root / "pkg" / "deep" / "data.bin").write_bytes(bytes(range(256)))
    (root / "run.sh").write_text("#!/bin/sh\n")
    (root / "run.sh").chmod(0o755)
    (root / "link").symlink_to("pkg/a.py")
    (root / "päth ünicode.txt").write_text("x")
    return root


@pytest.fixture
def trees(tmp_path: Path) -> TreeStore:
    return TreeStore(tmp_path / "trees", policy=PatchPolicy(frozenset({"threads"})))


def test_tree_hash_is_gits(source: Path, trees: TreeStore, tmp_path: Path) -> None:
    tree = trees.import_stock(source, "demo")
    expected = oracle_tree(source, tmp_path / "oracle")
    assert tree.tree_hash == expected
    assert verify_checkout(source) == expected
    path = trees.checkout(tree.commit)
    assert oracle_tree(path, tmp_path / "again") == expected
    assert (path / "link").readlink() == Path("pkg/a.py")


def test_same_content_is_the_same_commit(source: Path, trees: TreeStore, tmp_path: Path) -> None:
    first = trees.import_stock(source, "one")
    (source / "pkg" / "__pycache__").mkdir()
    (source / "pkg" / "__pycache__" / "a.pyc").write_bytes(b"cache")
    (source / "kernels_build").mkdir()
    (source / "kernels_build" / "k.so").write_bytes(b"built")
    assert trees.import_stock(source, "two") == first
    assert TreeStore(tmp_path / "other").import_stock(source, "three") == first
    (source / "pkg" / "a.py").write_text("changed\n")
    assert trees.import_stock(source, "one") != first


def test_gitattributes_and_user_configuration_do_not_change_content(
    source: Path, trees: TreeStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "gitconfig"
    config.write_text("[core]\n autocrlf = true\n[commit]\n gpgsign = true\n")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(config))
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "nowhere"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(tmp_path / "nowhere-index"))
    tree = trees.import_stock(source, "demo")
    path = trees.checkout(tree.commit)
    assert (path / "pkg.txt").read_bytes() == b"sorts around the folder\r\n"


def test_checkout_is_read_only_reused_and_repaired(source: Path, trees: TreeStore) -> None:
    tree = trees.import_stock(source, "demo")
    path = trees.checkout(tree.commit)
    inode = path.stat().st_ino
    assert not any(p.stat().st_mode & 0o222 for p in path.rglob("*") if not p.is_symlink())
    assert trees.checkout(tree.commit).stat().st_ino == inode
    target = path / "pkg" / "a.py"
    target.chmod(0o644)
    target.write_text("tampered\n")
    assert verify_checkout(path) != tree.tree_hash
    assert trees.checkout(tree.commit) == path
    assert verify_checkout(path) == tree.tree_hash


def test_patch_made_by_plain_git_applies(source: Path, trees: TreeStore, tmp_path: Path) -> None:
    tree = trees.import_stock(source, "demo")
    work = tmp_path / "work"
    before = oracle_tree(source, work)
    (work / "pkg" / "a.py").write_text("new first\n" + (source / "pkg" / "a.py").read_text())
    (work / "pkg" / "deep" / "draft.safetensors").write_bytes(BINARY)
    (work / "pkg" / "added.py").write_text("no newline at end")
    (work / "run.sh").unlink()
    git(work, "add", "-A", "-f", ".")
    patch = git(work, "diff", "--cached", "--binary", before) + "\n\n"
    changed = trees.commit_patch(tree.commit, patch, "Change it")
    assert changed.tree_hash == git(work, "write-tree")
    assert trees.commit_patch(tree.commit, patch, "Change it") == changed
    # Our own diff reproduces it too.
    again = trees.commit_patch(tree.commit, trees.diff(tree.commit, changed.commit), "Other")
    assert again.tree_hash == changed.tree_hash and again.commit != changed.commit


def edited(source: Path, old: str, new: str) -> dict[str, bytes | None]:
    return {"pkg/a.py": (source / "pkg" / "a.py").read_text().replace(old, new).encode()}


def test_three_way_merge_and_conflict(source: Path, trees: TreeStore) -> None:
    stock = trees.import_stock(source, "demo")
    # The other side has changed a line of the patch's context: only a three-way merge can tell.
    mine = trees.commit_files(stock.commit, edited(source, "line 30\n", "mine\n"), "Mine")
    moved = trees.commit_files(stock.commit, edited(source, "line 27\n", "theirs\n"), "Theirs")
    merged = trees.commit_patch(moved.commit, trees.diff(stock.commit, mine.commit), "Merge")
    text = trees.read_file(merged.commit, "pkg/a.py").decode()
    assert "mine\n" in text and "theirs\n" in text and "line 30\n" not in text
    clash = trees.commit_files(stock.commit, edited(source, "line 30\n", "clash\n"), "Clash")
    with pytest.raises(PatchConflict, match=r"pkg/a\.py"):
        trees.commit_patch(clash.commit, trees.diff(stock.commit, mine.commit), "Merge")
    with pytest.raises(PatchConflict):
        trees.commit_patch(stock.commit, "this is no patch", "Nothing")


def test_knobs_keep_comments(source: Path, trees: TreeStore) -> None:
    stock = trees.import_stock(source, "demo")
    knobs = {"k": 8, "draft.n": 3, "draft.policy": "longest", "new.table.x": 0.5, "on": True}
    tree = trees.commit_knobs(stock.commit, knobs)
    assert trees.read_file(tree.commit, "engine.toml").decode() == (
        '# knobs\nk = 8  # block\nname = "a#b"\non = true\n\n'
        '[draft]\nn = 3\npolicy = "longest"\n\n[new.table]\nx = 0.5\n'
    )
    with pytest.raises(TreeRefused, match=r"draft\.threads belongs to"):
        trees.commit_knobs(stock.commit, {"draft.threads": 2})
    with pytest.raises(TreeRefused, match="not a key"):
        trees.commit_knobs(stock.commit, {"a b": 1})
    with pytest.raises(TreeRefused):
        trees.commit_knobs(stock.commit, {"k.x": 1})


def test_replacing_a_whole_tree(source: Path, trees: TreeStore, tmp_path: Path) -> None:
    stock = trees.import_stock(source, "demo")
    (source / "run.sh").unlink()
    (source / "other.py").write_text("1\n")
    tree = trees.commit_tree(stock.commit, source)
    assert tree.tree_hash == oracle_tree(source, tmp_path / "oracle")


def test_bundle_travels_to_an_empty_store(source: Path, trees: TreeStore, tmp_path: Path) -> None:
    stock = trees.import_stock(source, "demo")
    tree = trees.commit_knobs(stock.commit, {"k": 9})
    other = TreeStore(tmp_path / "other")
    with pytest.raises(EngineError, match="not in the tree store"):
        other.tree(tree.commit)
    assert other.import_bundle(trees.bundle(tree.commit)) == [tree.commit]
    assert other.tree(tree.commit) == tree
    assert other.tree(stock.commit) == stock
    assert other.diff(stock.commit, tree.commit) == trees.diff(stock.commit, tree.commit)
    with pytest.raises(EngineError, match="bundle"):
        other.import_bundle(b"no bundle at all")


def test_series_reproduces_the_tree_also_through_plain_git(
    source: Path, trees: TreeStore, tmp_path: Path
) -> None:
    stock = trees.import_stock(source, "demo")
    one = trees.commit_knobs(stock.commit, {"k": 5}, "Longer block\n\ndiff --git a/x b/x\n--- a/x")
    two = trees.commit_files(one.commit, {"pkg/a.py": b"x\n", "draft.safetensors": BINARY}, "Two")
    series = trees.patch_series(stock.commit, two.commit)
    assert len(series) == 2
    at = stock
    for patch in series:
        at = trees.commit_patch(at.commit, patch, "any")
    assert at.tree_hash == two.tree_hash
    work = tmp_path / "work"
    oracle_tree(source, work)
    for patch in series:
        git(work, "apply", "--index", "-", stdin=patch)
    assert git(work, "write-tree") == two.tree_hash
    with pytest.raises(EngineError, match="does not descend"):
        trees.patch_series(two.commit, trees.commit_knobs(stock.commit, {"k": 1}).commit)


def test_concurrent_stores_agree(source: Path, trees: TreeStore, tmp_path: Path) -> None:
    def work(number: int) -> tuple[str, Path]:
        store = TreeStore(tmp_path / "trees")
        stock = store.import_stock(source, f"n{number}")
        tree = store.commit_knobs(stock.commit, {"k": number % 2})
        return tree.tree_hash, store.checkout(tree.commit)

    with ThreadPoolExecutor(4) as pool:
        done = list(pool.map(work, range(8)))
    assert len(set(done)) == 2
    assert all(verify_checkout(path) == tree_hash for tree_hash, path in done)


def test_prune_leaves_nothing(source: Path, trees: TreeStore) -> None:
    stock = trees.import_stock(source, "demo")
    other = trees.commit_knobs(stock.commit, {"k": 5})
    kept, gone = trees.checkout(stock.commit), trees.checkout(other.commit)
    assert trees.prune(keep=[stock.tree_hash]) == [other.tree_hash]
    assert kept.exists() and not gone.exists()
    trees.prune()
    assert list(trees.checkouts.iterdir()) == []
