"""What a candidate's change may not do, each as a refusal and beside it an allowed control."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from engines.errors import EngineError, TreeRefused
from engines.patch_policy import PatchPolicy
from engines.tree_store import Tree, TreeStore


@pytest.fixture
def trees(tmp_path: Path) -> TreeStore:
    policy = PatchPolicy(frozenset({"threads"}), max_file_bytes=2000, max_change_bytes=3000)
    return TreeStore(tmp_path / "trees", policy=policy)


@pytest.fixture
def stock(trees: TreeStore, tmp_path: Path) -> Tree:
    source = tmp_path / "source"
    source.mkdir()
    (source / "a.py").write_text("one\n")
    (source / "old.py").write_text("SGLANG_SIMULATE_ACC_LEN = 0  # stands in stock\n")
    (source / "engine.toml").write_text("k = 4\n")
    return trees.import_stock(source, "demo")


def new_file(path: str, line: str = "x", mode: str = "100644") -> str:
    return (
        f"diff --git a/{path} b/{path}\nnew file mode {mode}\n--- /dev/null\n+++ b/{path}\n"
        f"@@ -0,0 +1 @@\n+{line}\n"
    )


@pytest.mark.parametrize(
    ("patch", "message"),
    [
        (new_file("../evil.py"), r"'\.\./evil\.py' \(patch line 1\) leaves"),
        (new_file("x/../../evil.py"), "leaves the tree"),
        (new_file(".git/hooks/post-checkout"), "git's own"),
        (new_file("sub/.GIT/config"), "git's own"),
        (new_file(".gitattributes", "* -diff"), "git's own"),
        (new_file("/etc/passwd"), "absolute"),
        ("--- a.py\n+++ /etc/passwd\n@@ -1 +1 @@\n-one\n+two\n", "absolute"),
        (
            "diff --git a/a.py b/../b.py\nsimilarity index 100%\n"
            "rename from a.py\nrename to ../b.py\n",
            "leaves the tree",
        ),
        (new_file("out", "/etc/passwd\n\\ No newline at end of file", "120000"), "leaves"),
        (new_file("out", "../x\n\\ No newline at end of file", "120000"), "leaves"),
        (
            new_file("m", "Subproject commit " + "1" * 40, "160000"),
            "submodule",
        ),
        (new_file("b.py", "env['SGLANG_SIMULATE_ACC_LEN'] = '4'"), "b.py line 1 sets SGLANG"),
        (new_file("b.py", "--speculative-accept-threshold-single 0.9"), "below 1"),
        (new_file("b.py", "speculative_accept_threshold_acc=.5,"), "below 1"),
        (new_file("engine.toml2", "x" * 2500), "more than 2000"),
        (new_file("b.py", "x" * 3500), "more than 3000"),
    ],
)
def test_refused(trees: TreeStore, stock: Tree, patch: str, message: str) -> None:
    with pytest.raises(TreeRefused, match=message):
        trees.commit_patch(stock.commit, patch, "Try")


@pytest.mark.parametrize(
    "patch",
    [
        new_file("sub/dir/b.py", "+++ b/../looks like a header, is content"),
        new_file("b.py", "accept_threshold = 1.0"),
        new_file("inner", "sub/../a.py\n\\ No newline at end of file", "120000"),
        new_file("tool.sh", "#!/bin/sh", "100755"),
        "--- a/old.py\n+++ b/old.py\n@@ -1 +1,2 @@\n"
        " SGLANG_SIMULATE_ACC_LEN = 0  # stands in stock\n+more\n",
    ],
)
def test_allowed(trees: TreeStore, stock: Tree, patch: str) -> None:
    assert trees.commit_patch(stock.commit, patch, "Fine").tree_hash != stock.tree_hash


def test_files_and_folders_are_held_to_the_same_rules(
    trees: TreeStore, stock: Tree, tmp_path: Path
) -> None:
    for path in ("../x", "/x", ".git/config", "a//b", "a/./b", "new\nline"):
        with pytest.raises(TreeRefused, match="path"):
            trees.commit_files(stock.commit, {path: b"x"}, "Try")
    with pytest.raises(TreeRefused, match=r"threads belongs to setting\.toml"):
        trees.commit_files(stock.commit, {"engine.toml": b"[x]\nthreads = 4\n"}, "Try")
    with pytest.raises(TreeRefused, match="not TOML"):
        trees.commit_files(stock.commit, {"engine.toml": b"k = = 4\n"}, "Try")
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "out").symlink_to(tmp_path)
    with pytest.raises(TreeRefused, match="leaves the tree"):
        trees.commit_tree(stock.commit, folder)
    with pytest.raises(TreeRefused, match="leaves the tree"):
        trees.import_stock(folder, "bad")


def test_a_bundle_cannot_smuggle(trees: TreeStore, tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()

    def git(*args: str) -> None:
        identity = ("-c", "user.name=x", "-c", "user.email=x@x")
        subprocess.run(["git", *identity, *args], cwd=work, check=True, capture_output=True)

    git("init", "-q")
    (work / "out").symlink_to("/etc/passwd")
    git("add", "out")
    git("commit", "-qm", "evil")
    git("bundle", "create", "-q", "../evil.bundle", "HEAD")
    with pytest.raises(EngineError, match="leaves the tree"):
        trees.import_bundle((tmp_path / "evil.bundle").read_bytes())
