"""Made once, whole or not at all, whoever asks and whoever is killed."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from settings.paths import checkout_root
from settings.provision import provide_file, provide_folder


def complete(folder: Path) -> bool:
    return (folder / "done").is_file()


def test_made_once_by_many(tmp_path: Path) -> None:
    made: list[int] = []

    def make(folder: Path) -> None:
        made.append(threading.get_ident())
        time.sleep(0.05)
        (folder / "done").write_text("x")

    with ThreadPoolExecutor(6) as pool:
        ways = [pool.submit(provide_folder, tmp_path / "m", complete, make) for _ in range(6)]
    assert {way.result() for way in ways} == {tmp_path / "m"}
    assert len(made) == 1


def test_failure_leaves_nothing(tmp_path: Path) -> None:
    def fail(folder: Path) -> None:
        (folder / "half").write_text("x")
        raise RuntimeError("no")

    with pytest.raises(RuntimeError):
        provide_folder(tmp_path / "m", complete, fail)
    with pytest.raises(RuntimeError):
        provide_file(tmp_path / "f", lambda path: fail(path.parent))
    assert [p.name for p in tmp_path.iterdir() if p.is_dir()] == []
    assert not (tmp_path / "f").exists()


def test_incomplete_folder_is_remade(tmp_path: Path) -> None:
    (tmp_path / "m").mkdir()
    (tmp_path / "m/old").write_text("x")
    provide_folder(tmp_path / "m", complete, lambda f: (f / "done").write_text("x") and None)
    assert [p.name for p in (tmp_path / "m").iterdir()] == ["done"]


def test_killed_maker_blocks_nobody(tmp_path: Path) -> None:
    script = (
        "import sys, time; from pathlib import Path\n"
        "from settings.provision import provide_folder\n"
        "def make(folder):\n"
        "    (folder / 'half').write_text('x'); print('in', flush=True); time.sleep(60)\n"
        "provide_folder(Path(sys.argv[1]), lambda f: False, make)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path / "m")],
        cwd=checkout_root(),
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None and process.stdout.readline().strip() == "in"
    finally:
        process.kill()
        process.communicate()
    assert not (tmp_path / "m").exists()
    provide_folder(tmp_path / "m", complete, lambda f: (f / "done").write_text("x") and None)
    assert sorted(p.name for p in tmp_path.iterdir()) == [".m.lock", "m"]
