"""Where a data folder cannot be, every entry point says so with the remedy."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from settings.errors import SpecfarmError
from settings.paths import checkout_root, data_root, shared_dir, work_dir


def test_folders_are_made_below_the_data_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPECFARM_DATA", str(tmp_path / "a" / "b"))
    assert work_dir("logs") == tmp_path / "a" / "b" / "work" / "logs"
    assert shared_dir("models").is_dir() and work_dir("logs").is_dir()


def test_a_data_folder_that_cannot_be_made_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    for folder in (tmp_path / "file", tmp_path / "file" / "below"):
        monkeypatch.setenv("SPECFARM_DATA", str(folder))
        with pytest.raises(SpecfarmError, match=f"{folder} cannot be made.*SPECFARM_DATA"):
            data_root()


def test_a_script_says_it_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    ran = subprocess.run(
        [str(checkout_root() / "scripts/stop.sh"), "30000"],
        env={**os.environ, "SPECFARM_DATA": str(tmp_path / "file")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 2 and ran.stdout == ""
    assert ran.stderr.startswith("error: the data folder") and ran.stderr.count("\n") == 1
