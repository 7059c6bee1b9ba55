"""The allow-list against a brute-force oracle: each file is hidden or covered."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from engines.sandbox.allow_list import allow_list


@pytest.fixture
def world(tmp_path: Path) -> Path:
    """A readable folder in which hidden ones lie, one of them with something asked for inside."""
    for name in (
        "root/a/file",
        "root/a/deep/er/file",
        "root/data/work/ledger",
        "root/data/work/checkouts/t/server.py",
        "root/data/shared/caches/t/kernel",
        "root/home/key",
        "root/b/file",
        "elsewhere/file",
    ):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    (tmp_path / "root" / "to_data").symlink_to("data/work")
    (tmp_path / "alias").symlink_to("root")
    return tmp_path


def test_every_file_is_hidden_or_covered(world: Path) -> None:
    root = world / "root"
    hidden = (root / "data", root / "home")
    tree = root / "data" / "work" / "checkouts" / "t"
    cache = root / "data" / "shared" / "caches" / "t"
    variables = {"SPECFARM_SANDBOX_READ": str(world / "alias")}
    found = allow_list(tree, root / "a", (cache,), variables, hidden)
    files = [path for path in world.rglob("*") if path.is_file() and not path.is_symlink()]
    assert len(files) == 8
    for path in files:
        asked_for = path.is_relative_to(tree) or path.is_relative_to(cache)
        inside = path.is_relative_to(root) and not any(path.is_relative_to(h) for h in hidden)
        assert found.covers(path) is (asked_for or inside), path
    # A rule on a link would be a rule on what it points to.
    assert not any(Path(rule).is_symlink() for rule in found.readable)
    assert (str(world / "alias"), "root") in found.links
    assert (str(root / "to_data"), "data/work") in found.links
    assert str(root) in found.listable


def test_no_path_is_covered_twice(world: Path) -> None:
    variables = {"CUDA_HOME": "/usr/lib", "LD_LIBRARY_PATH": f"{world}/root/a:{world}/root"}
    found = allow_list(world / "root" / "b", world / "root", (), variables, ())
    assert str(world / "root") in found.readable and "/usr" in found.readable
    for path in map(Path, found.readable):
        assert not [other for other in found.readable if Path(other) in path.parents]


def test_nonsense_in_the_environment_is_passed_over(world: Path) -> None:
    variables = {"LD_LIBRARY_PATH": f":relative:/nowhere:/:{world}/elsewhere"}
    found = allow_list(world / "root", world / "root", (), variables, ())
    assert "/" not in found.readable and "/nowhere" not in found.readable
    assert found.covers(world / "elsewhere")


def test_the_interpreter_is_covered_and_the_home_is_not(world: Path) -> None:
    found = allow_list(world / "root", world / "root", (), {})
    assert found.covers(sys.executable) and found.covers(Path(sys.prefix))
    assert found.covers(Path(pytest.__file__))
    assert not found.covers(Path.home() / ".ssh")


def test_search_path(world: Path) -> None:
    found = allow_list(world / "root" / "a", world / "root" / "a", (), {}, ())
    path = f"{world}/elsewhere:/usr/bin::{world}/root/a"
    assert found.search_path(path) == f"/usr/bin:{world}/root/a"
