"""The ledger survives kill -9 and answers by prefix."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from dataclasses import fields, replace
from pathlib import Path

import pytest

from farm.ledger import Ledger, UnitKey
from settings.errors import SpecfarmError
from settings.paths import checkout_root

KEY = UnitKey("c1", "s", "stock", "tree", "env", "harness", "cpu", "measure", "prompts", "a")

CHILD = """
import sys, time
from pathlib import Path
from farm.ledger import Ledger
from tests.farm.ledger.test_ledger import KEY
from dataclasses import replace
ledger = Ledger(Path(sys.argv[1]))
ledger.create_campaign("c1", "s", {})
ledger.start(KEY)
ledger.finish(KEY, {"speed": 1.5})
ledger.start(replace(KEY, subject="b"))
print("in the middle", flush=True)
time.sleep(600)
"""


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    found = Ledger(tmp_path / "below" / "ledger.sqlite")
    found.create_campaign("c1", "s", {"rounds": 2})
    return found


def test_a_row_stands_before_the_work_and_after_it(ledger: Ledger) -> None:
    assert ledger.unit(KEY) is None
    ledger.start(KEY)
    running = ledger.unit(KEY)
    assert running is not None
    assert (running.status, running.attempts, running.ended) == ("running", 1, None)
    ledger.finish(KEY, {"speed": [1, 2.5]})
    done = ledger.unit(KEY)
    assert done is not None and done.ended is not None and done.ended >= done.started
    assert (done.status, done.result, done.error) == ("done", {"speed": [1, 2.5]}, None)


def test_attempts_count_every_start_and_a_restart_forgets_the_error(ledger: Ledger) -> None:
    ledger.start(KEY)
    ledger.fail(KEY, "no disk")
    failed = ledger.unit(KEY)
    assert failed is not None and (failed.status, failed.error) == ("failed", "no disk")
    ledger.start(KEY)
    again = ledger.unit(KEY)
    assert again is not None
    assert (again.status, again.attempts, again.error, again.ended) == ("running", 2, None, None)


def test_kill_9_in_the_middle_leaves_running_and_finished_units(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(path)],
        cwd=checkout_root(),
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    try:
        assert child.stdout.readline() == "in the middle\n"
        os.kill(child.pid, signal.SIGKILL)
    finally:
        child.kill()
        child.wait()
        child.stdout.close()
    ledger = Ledger(path)
    assert [(u.subject, u.status, u.attempts) for u in ledger.units("c1")] == [
        ("a", "done", 1),
        ("b", "running", 1),
    ]
    assert ledger.units("c1")[0].result == {"speed": 1.5}
    campaign = ledger.campaign("c1")
    assert campaign.status == "running" and campaign.owner_pid == child.pid
    ledger.start(replace(KEY, subject="b"))
    assert ledger.units("c1")[1].attempts == 2


def test_a_failing_transaction_leaves_nothing_behind(ledger: Ledger) -> None:
    with pytest.raises(sqlite3.IntegrityError):
        ledger.create_campaign("c1", "other", {})
    ledger.create_campaign("d1", "s", {})
    assert [c.setting for c in ledger.campaigns()] == ["s", "s"]


@pytest.mark.parametrize("name", [field.name for field in fields(UnitKey)])
def test_every_field_of_a_key_makes_another_unit(name: str) -> None:
    other: object = 1 if name == "repeat" else "other"
    assert replace(KEY, **{name: other}).digest != KEY.digest  # type: ignore[arg-type]
    assert replace(KEY).digest == KEY.digest


def test_a_note_is_written_once(ledger: Ledger) -> None:
    assert ledger.note_once("c1", "seed", "abc") == "abc"
    assert ledger.note_once("c1", "seed", "def") == "abc"
    assert ledger.note_once("c2", "seed", ["other campaign"]) == ["other campaign"]
    assert Ledger(ledger.path).note_once("c1", "seed", None) == "abc"


def test_campaigns_are_found_by_a_prefix_only_they_have(ledger: Ledger) -> None:
    ledger.create_campaign("20260101-aaaa", "s", {})
    ledger.create_campaign("20260101-bbbb", "s", {})
    assert ledger.campaign("20260101-a").id == "20260101-aaaa"
    assert ledger.campaign("c1").options == {"rounds": 2}
    with pytest.raises(SpecfarmError, match="matches 2 campaigns") as ambiguous:
        ledger.campaign("2026")
    assert "20260101-bbbb" in ambiguous.value.remedy
    for unknown in ("zzz", "%", "c_", "c1' OR 1=1 --"):
        with pytest.raises(SpecfarmError, match="is not a campaign"):
            ledger.campaign(unknown)


def test_no_campaign_at_all_says_so(tmp_path: Path) -> None:
    with pytest.raises(SpecfarmError, match="none yet"):
        Ledger(tmp_path / "l.sqlite").campaign("x")


def test_status_and_report_are_kept_and_a_later_status_keeps_the_report(ledger: Ledger) -> None:
    assert ledger.report("c1") is None
    ledger.set_status("c1", "finished", {"promoted": None})
    ledger.set_status("c1", "running")
    assert ledger.report("c1") == {"promoted": None}
    assert ledger.campaign("c1").status == "running"
    assert ledger.report("nobody") is None


def test_two_handles_see_each_other(ledger: Ledger) -> None:
    other = Ledger(ledger.path)
    ledger.start(KEY)
    other.finish(KEY, 1)
    found = ledger.unit(KEY)
    assert found is not None and found.status == "done"
