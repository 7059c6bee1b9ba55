"""Old Ray session folders are removed; whatever may still be in use is not."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

import farm.cluster as cluster
import farm.ray_sessions as module
from farm.ray_sessions import KEPT, clear_sessions
from settings.errors import SpecfarmError

LONG_AGO = time.time() - 86_400
FREE_PID = 2**22 + 7  # above every pid_max


def session(folder: Path, pid: int, *, age_s: float = 86_400.0, number: int = 0) -> Path:
    """A fake session folder whose files were last written `age_s` seconds ago."""
    written = time.time() - age_s
    stamp = time.strftime("%Y-%m-%d_%H-%M-%S", time.localtime(written))
    path = folder / f"session_{stamp}_{number:06d}_{pid}"
    (path / "logs").mkdir(parents=True)
    (path / "logs" / "raylet.out").write_text("log")
    (path / "sockets").mkdir()
    for item in (path / "logs" / "raylet.out", path / "logs", path / "sockets", path):
        os.utime(item, (written, written))
    return path


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_the_oldest_dead_sessions_go_and_the_newest_stay(tmp_path: Path) -> None:
    made = [session(tmp_path, FREE_PID, age_s=86_400 - 60 * i) for i in range(KEPT + 4)]
    (tmp_path / "session_latest").symlink_to(made[-1])
    (tmp_path / "prom_metrics_service_discovery.json").write_text("{}")
    removed = clear_sessions(tmp_path)
    assert removed == made[:4]
    assert names(tmp_path) == {p.name for p in made[4:]} | {
        "session_latest",
        "prom_metrics_service_discovery.json",
    }
    assert clear_sessions(tmp_path) == []


def test_one_start_removes_a_bounded_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_REMOVED", 2)
    made = [session(tmp_path, FREE_PID, age_s=86_400 - 60 * i) for i in range(KEPT + 3)]
    assert clear_sessions(tmp_path) == made[:2]
    assert clear_sessions(tmp_path) == made[2:3]


@pytest.fixture
def _none_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "KEPT", 0)


def test_a_session_whose_driver_runs_stays(tmp_path: Path, _none_kept: None) -> None:
    began = psutil.Process().create_time()
    session(tmp_path, os.getpid(), age_s=time.time() - began)
    # The same pid before this process began: the number was given out again.
    reused = session(tmp_path, os.getpid(), age_s=time.time() - began + 3_600)
    assert clear_sessions(tmp_path) == [reused]
    for item in (*tmp_path.glob("*/logs/*"), *tmp_path.glob("*/*"), *tmp_path.glob("*")):
        os.utime(item, (LONG_AGO, LONG_AGO))
    assert clear_sessions(tmp_path) == []
    assert len(names(tmp_path)) == 1


def test_a_session_a_process_names_stays(tmp_path: Path, _none_kept: None) -> None:
    """A raylet that outlived its driver."""
    used, unused = session(tmp_path, FREE_PID), session(tmp_path, FREE_PID, number=1)
    code = "import sys; print('up', flush=True); sys.stdin.readline()"
    raylet = subprocess.Popen(
        [sys.executable, "-c", code, f"--session-dir={used}"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert raylet.stdout is not None and raylet.stdout.readline() == b"up\n"
        assert clear_sessions(tmp_path) == [unused]
    finally:
        raylet.kill()
        raylet.wait()
    assert clear_sessions(tmp_path) == [used]


def test_a_session_that_is_written_to_stays(tmp_path: Path, _none_kept: None) -> None:
    path = session(tmp_path, FREE_PID)
    log = path / "logs" / "raylet.out"
    os.utime(log, (time.time(), time.time()))
    assert clear_sessions(tmp_path) == []
    os.utime(log, (LONG_AGO, LONG_AGO))
    assert clear_sessions(tmp_path) == [path]


def test_what_ray_did_not_make_stays(tmp_path: Path, _none_kept: None) -> None:
    other = tmp_path / "elsewhere"
    other.mkdir()
    (other / "precious").write_text("x")
    old = "2020-01-01_00-00-00_000000"
    (tmp_path / f"session_{old}_{FREE_PID}").symlink_to(other)
    for name in ("session_latest", "sessions", f"session_{old}", "session_2020-99-99_00-00-00_0_1"):
        (tmp_path / name).mkdir()
        os.utime(tmp_path / name, (LONG_AGO, LONG_AGO))
    (tmp_path / f"session_{old}_{FREE_PID + 1}").write_text("a file")
    before = names(tmp_path)
    assert clear_sessions(tmp_path) == []
    assert names(tmp_path) == before and (other / "precious").exists()


def test_rays_folder_is_this_users_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster.tempfile, "gettempdir", lambda: str(tmp_path))
    folder = cluster.ray_folder()
    assert folder.parent == tmp_path and folder.stat().st_mode & 0o777 == 0o700
    folder.rmdir()
    (tmp_path / "theirs").mkdir()
    folder.symlink_to(tmp_path / "theirs")
    with pytest.raises(SpecfarmError, match="not a folder of yours"):
        cluster.ray_folder()
