"""The machine-wide timing lock, between real processes."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import farm.search.lock_watch as lock_watch
import farm.timing_lock as module
from farm.search.lock_watch import LockWatch
from farm.timing_lock import OWNER_VARIABLE, Holder, TimingLockError, holder, timing_lock

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
    monkeypatch.delenv(OWNER_VARIABLE, raising=False)


@pytest.fixture
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Words come after 0.4 s and then every second."""
    for place in (module, lock_watch):
        monkeypatch.setattr(place, "TELL_AFTER_S", 0.4)
        monkeypatch.setattr(place, "TELL_EVERY_S", 1.0)


@contextmanager
def other(owner: str | None = None) -> Iterator[subprocess.Popen[str]]:
    """Another process that holds the lock until its standard input ends."""
    environment = dict(os.environ) | ({} if owner is None else {OWNER_VARIABLE: owner})
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
    finally:
        process.kill()
        process.wait()


def let_go_after(process: subprocess.Popen[str], seconds: float) -> threading.Timer:
    assert process.stdin is not None
    timer = threading.Timer(seconds, process.stdin.close)
    timer.start()
    return timer


def test_another_process_is_named_waited_for_and_survived(_impatient: None) -> None:
    assert holder() is None
    with other() as process:
        who = holder()
        assert who is not None
        assert (who.pid, who.purpose) == (process.pid, "the other bench")
        waits: list[tuple[Holder, float]] = []
        with (
            pytest.raises(TimingLockError, match=f"pid {process.pid}: the other bench, since"),
            timing_lock("mine", timeout_s=3.0, on_wait=lambda *word: waits.append(word)),
        ):
            pass
        assert len(waits) >= 2 and {word[0] for word in waits} == {who}
        assert waits[0][1] >= 0.4
        assert waits[1][1] - waits[0][1] >= 1.0
    with timing_lock("mine", timeout_s=5.0):  # the dead holder left nothing behind
        mine = holder()
        assert mine is not None and (mine.pid, mine.purpose) == (os.getpid(), "mine")
    assert holder() is None


def test_a_short_wait_is_not_worth_a_word(capfd: pytest.CaptureFixture[str]) -> None:
    with other() as process:
        let_go_after(process, 0.5)
        with timing_lock("mine", timeout_s=60.0) as waited_s:
            pass
    assert 0.3 < waited_s < 60.0
    assert capfd.readouterr().err == ""


def test_a_long_wait_is_said_on_stderr(_impatient: None, capfd: pytest.CaptureFixture[str]) -> None:
    with other() as process:
        let_go_after(process, 1.0)
        with timing_lock("mine", timeout_s=60.0):
            pass
    said = capfd.readouterr().err
    assert f"pid {process.pid}: the other bench, since " in said
    assert said.startswith("waiting for the machine's timing lock (")


def test_a_wait_for_the_same_campaign_is_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(OWNER_VARIABLE, "campaign-1")
    for theirs, counted in (("campaign-1", False), ("campaign-2", True), (None, False)):
        with other(theirs) as process:
            let_go_after(process, 0.5)
            with timing_lock("mine", timeout_s=60.0) as waited_s:
                pass
        assert (waited_s > 0.3) == counted, theirs
    with timing_lock("mine") as waited_s:
        assert waited_s == 0.0


def test_the_driver_hears_what_its_workers_wait_for(
    _impatient: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(OWNER_VARIABLE, "campaign-1")
    said: list[str] = []
    with other("campaign-1"), LockWatch(said.append, poll_s=0.05):
        time.sleep(0.8)
    assert said == []
    with other("campaign-2") as process, LockWatch(said.append, poll_s=0.05):
        deadline = time.monotonic() + 30
        while len(said) < 2:
            assert time.monotonic() < deadline
            time.sleep(0.05)
    assert all(f"pid {process.pid}: the other bench" in line for line in said)
    with LockWatch(said.append, poll_s=0.05):
        time.sleep(0.8)
    assert len(said) == 2


def test_it_is_reentrant_in_one_process() -> None:
    with timing_lock("outer", timeout_s=0.3):
        with timing_lock("inner", timeout_s=0.3) as waited_s:
            assert waited_s == 0.0
        who = holder()
        assert who is not None and who.purpose == "outer"
    assert holder() is None


def test_a_note_that_cannot_be_read_is_an_unknown_holder(tmp_path: Path) -> None:
    with other():
        for note in ("", "{}", "[1]", '{"pid": "x", "purpose": 1, "since": 2, "owner": 3}'):
            (tmp_path / "timing.lock").write_text(note)
            with (
                pytest.raises(TimingLockError, match="an unknown process"),
                timing_lock("mine", timeout_s=0.0),
            ):
                pass


def test_a_link_in_its_place_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "victim").write_text("precious")
    (tmp_path / "timing.lock").symlink_to(tmp_path / "victim")
    with pytest.raises((TimingLockError, OSError)), timing_lock("mine", timeout_s=0.1):
        pass
    assert (tmp_path / "victim").read_text() == "precious"
