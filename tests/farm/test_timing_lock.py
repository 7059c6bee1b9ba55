"""The machine-wide timing lock, between real processes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from farm.timing_lock import TimingLockError, holder, timing_lock

HOLD = """
import sys
from farm.timing_lock import timing_lock
with timing_lock("the other bench"):
    print("held", flush=True)
    sys.stdin.readline()
"""


@pytest.fixture(autouse=True)
def _own_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPECFARM_TIMING_LOCK", str(tmp_path / "timing.lock"))


def _other() -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def test_another_process_is_named_waited_for_and_survived() -> None:
    assert holder() is None
    process = _other()
    try:
        said = holder()
        assert said is not None
        assert f"pid {process.pid}: the other bench" in said
        waits: list[str] = []
        with (
            pytest.raises(TimingLockError, match="the other bench"),
            timing_lock("mine", timeout_s=0.3, on_wait=lambda who, _: waits.append(who)),
        ):
            pass
        assert waits == [said]
    finally:
        process.kill()
        process.wait()
    with timing_lock("mine", timeout_s=5.0):  # the dead holder left nothing behind
        assert "mine" in (holder() or "")
    assert holder() is None


def test_it_is_reentrant_in_one_process() -> None:
    with timing_lock("outer", timeout_s=0.3):
        with timing_lock("inner", timeout_s=0.3):
            pass
        assert "outer" in (holder() or "")
    assert holder() is None


def test_a_link_in_its_place_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "victim").write_text("precious")
    (tmp_path / "timing.lock").symlink_to(tmp_path / "victim")
    with pytest.raises((TimingLockError, OSError)), timing_lock("mine", timeout_s=0.1):
        pass
    assert (tmp_path / "victim").read_text() == "precious"
