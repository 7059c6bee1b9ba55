"""What a candidate's change may not do, each as a refusal and beside it an allowed control."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from engines.errors import EngineError, TreeRefused
from engines.native_driver import NativeDriver
from engines.patch_policy import PatchPolicy
from engines.tree_store import Tree, TreeStore
from settings.paths import checkout_root


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


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"A.py": b"x"}, "differ only in letter case"),
        ({"Sub/b.py": b"x", "sub/c.py": b"x"}, "differ only in letter case"),
        ({"caf\u00e9.py": b"x", "cafe\u0301.py": b"x"}, "differ only in letter case"),
        ({"lib.so": b"\x7fELF\x02\x01\x01\0"}, r"lib\.so is compiled code \(ELF\)"),
        ({"table.txt": b"\x80\x04]."}, "pickle"),
        ({"sub/sitecustomize.py": b"x"}, "start-up hook"),
        ({"sub/.gitattributes": b"* filter=x"}, "git's own"),
        ({"run.sh": b"export sglang_simulate_acc_len=3"}, "run.sh line 1 sets sglang_simulate"),
        ({"conf.json": b'{\n"acceptThreshold": "0.5"}'}, "conf.json line 2 sets acceptThreshold"),
        (
            {"engine.toml": b"k = 4\n[a.accept]\nthreshold = 0.5\n"},
            "line 3 sets a.accept.threshold",
        ),
        ({"engine.toml": b"k = 4\n[[a]]\nThreads = 9\n"}, "line 3: a.Threads belongs to setting"),
        ({"engine.toml": b"k = [{ threads = 9 }]\n"}, "line 1: k.threads belongs to setting"),
        ({"engine.toml": b"[threads]\nn = 9\n"}, "line 1: threads belongs to setting"),
    ],
)
def test_refused_in_whole_files(
    trees: TreeStore, stock: Tree, files: dict[str, bytes], message: str
) -> None:
    with pytest.raises(TreeRefused, match=message) as refused:
        trees.commit_files(stock.commit, files, "Try")
    assert refused.value.remedy


def test_the_number_of_files_is_limited(tmp_path: Path) -> None:
    trees = TreeStore(tmp_path / "trees", policy=PatchPolicy(max_files=3))
    source = tmp_path / "source"
    source.mkdir()
    for number in range(5):  # a stock tree may hold any number
        (source / f"{number}.py").write_text("x\n")
    stock = trees.import_stock(source, "demo")
    three: dict[str, bytes | None] = {"0.py": None, "1.py": b"y", "new.py": b"x"}
    assert trees.commit_files(stock.commit, three, "Fine").tree_hash != stock.tree_hash
    with pytest.raises(TreeRefused, match="touches 4 files, more than 3"):
        trees.commit_files(stock.commit, {**three, "2.py": None}, "Try")


def test_a_binary_hunk_is_refused_by_the_size_it_unfolds_to(trees: TreeStore, stock: Tree) -> None:
    patch = (
        "diff --git a/b.bin b/b.bin\nnew file mode 100644\nindex 0000000..1111111\n"
        "GIT binary patch\nliteral 9000000000\nzcmV\n\n"
    )
    with pytest.raises(TreeRefused, match=r"binary hunk \(patch line 5\) is 9000000000 bytes"):
        trees.commit_patch(stock.commit, patch, "Try")


def test_every_shipped_mechanism_keeps_to_the_policy(tmp_path: Path) -> None:
    """Above all static_table, whose table is text for this reason."""
    driver = NativeDriver()
    trees = TreeStore(tmp_path / "trees", policy=PatchPolicy(driver.setting_owned_keys))
    stock = trees.import_stock(driver.stock_source(), "native")
    patches = sorted((checkout_root() / "explorers").glob("*/*/change.patch"))
    assert {path.parent.name for path in patches} >= {"static_table", "fused_cpp_ops", "lossy"}
    for path in patches:
        text = path.read_bytes().decode("utf-8", "surrogateescape")
        assert trees.commit_patch(stock.commit, text, "Fine").tree_hash != stock.tree_hash


class TestCandidateCommits:
    """A commit named on the command line or carried in by a bundle."""

    def test_a_line_of_commits_on_stock_passes(self, trees: TreeStore, stock: Tree) -> None:
        one = trees.commit_files(stock.commit, {"b.py": b"x"}, "One")
        two = trees.commit_files(one.commit, {"c.py": b"x"}, "Two")
        assert trees.candidate(stock.commit, two.commit) == two
        assert trees.candidate(stock.commit, stock.commit) == stock

    def test_rewritten_history_is_refused(
        self, trees: TreeStore, stock: Tree, tmp_path: Path
    ) -> None:
        other = tmp_path / "other"
        other.mkdir()
        (other / "a.py").write_text("one\n")
        (other / "engine.toml").write_text("k = 4\n")
        orphan = trees.import_stock(other, "other")
        child = trees.commit_files(orphan.commit, {"b.py": b"x"}, "On another root")
        for commit in (orphan.commit, child.commit):
            with pytest.raises(TreeRefused, match="no straight line of commits"):
                trees.candidate(stock.commit, commit)
        later = trees.commit_files(stock.commit, {"b.py": b"x"}, "Later")
        with pytest.raises(TreeRefused, match="no straight line of commits"):
            trees.candidate(later.commit, stock.commit)

    def test_a_merge_is_refused(self, trees: TreeStore, stock: Tree) -> None:
        one = trees.commit_files(stock.commit, {"b.py": b"x"}, "One")
        two = trees.commit_files(stock.commit, {"c.py": b"x"}, "Two")
        merged = trees._repo.text(
            *("commit-tree", one.tree_hash, "-p", one.commit, "-p", two.commit, "-m", "Merge")
        )
        with pytest.raises(TreeRefused, match="no straight line of commits"):
            trees.candidate(stock.commit, merged)

    def test_what_a_bundle_brings_is_held_to_the_policy_as_a_change(
        self, trees: TreeStore, stock: Tree, tmp_path: Path
    ) -> None:
        """Its own lines count: `import_bundle` alone takes a whole tree's lines as given."""
        lax = TreeStore(tmp_path / "lax", policy=PatchPolicy())
        lax.import_bundle(trees.bundle(stock.commit))
        base = lax._repo.entries(stock.commit)
        (oid,) = lax._repo.write_blobs([b"env['SGLANG_SIMULATE_ACC_LEN'] = '4'\n"])
        tree = lax._repo.write_tree(stock.commit, {"b.py": ("100644", oid)})
        commit = lax._repo.commit(tree, stock.commit, "Smuggle")
        assert len(lax._repo.entries(commit)) == len(base) + 1
        trees.import_bundle(lax.bundle(commit))
        with pytest.raises(TreeRefused, match=r"b\.py line 1 sets SGLANG_SIMULATE_ACC_LEN"):
            trees.candidate(stock.commit, commit)
