from pathlib import Path

import pytest

from farm.promotion.harness import harness_files, harness_hash
from settings.paths import checkout_root

JUDGING = [
    *("farm/a.py", "farm/deep/b.txt", "verifier/c.py", "settings/d.py", "engines/e.py"),
    "engines/sandbox/deep/f.py",
]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name in JUDGING:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    return tmp_path


@pytest.mark.parametrize("name", JUDGING)
def test_a_change_of_any_judging_file_changes_the_hash(root: Path, name: str) -> None:
    before = harness_hash(root)
    (root / name).write_text("changed")
    assert harness_hash(root) != before
    (root / name).write_text(name)
    assert harness_hash(root) == before


def test_moving_text_between_files_changes_the_hash(root: Path) -> None:
    (root / "farm/a.py").write_text("xy")
    (root / "farm/b.py").write_text("z")
    before = harness_hash(root)
    (root / "farm/a.py").write_text("x")
    (root / "farm/b.py").write_text("yz")
    assert harness_hash(root) != before


@pytest.mark.parametrize(
    "name",
    ["farm/__pycache__/a.pyc", "engines/native/kernel.py", "settings/x/setting.toml", "README.md"],
)
def test_engines_settings_and_caches_are_not_the_harness(root: Path, name: str) -> None:
    before = harness_hash(root)
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_text("new")
    assert harness_hash(root) == before


def test_this_checkouts_own_verdicts_are_in_it() -> None:
    names = {p.relative_to(checkout_root()).as_posix() for p in harness_files(checkout_root())}
    assert {"farm/verdicts.py", "settings/schema.py", "engines/answers.py"} <= names
