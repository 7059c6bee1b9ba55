"""Commands that only read: plan, status, report, memory, doctor."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from explorers.memory_explorer import CATALOGUE
from farm.campaign.options import SearchOptions, parse_duration
from farm.doctor import checks
from farm.doctor_check import Gpu
from farm.ledger import Ledger, UnitKey
from farm.results import report_from_json
from settings.errors import SpecfarmError
from settings.loading import load_setting
from tests.farm.cli.conftest import Cli
from tests.farm.report.samples import sample_report

SETTING = "cpu_c1_smollm2-135m_ngram"
KEY = UnitKey("20260101-000000-abcd", SETTING, "", "", "", "", "", "measure", "", "r1-00-a")


@pytest.fixture
def ledger(cli: Cli, tmp_path: Path) -> Ledger:
    """A stopped campaign with one failed unit; its error looks like markup to a terminal."""
    found = Ledger(tmp_path / "data" / "work" / "ledger.sqlite")
    found.create_campaign(KEY.campaign, SETTING, SearchOptions().to_json())
    found.start(KEY)
    found.fail(KEY, "bad end [/bold] of [/usr/lib/x] log")
    found.set_status(KEY.campaign, "stopped")
    return found


def test_dry_run_says_what_would_run_and_runs_nothing(cli: Cli) -> None:
    ran = cli("search", SETTING, "--dry-run", "--budget", "30m")
    assert ran.code == 0 and ran.err == ""
    assert ran.out.startswith(f"{SETTING}: ") and "30 min buy about" in ran.out
    assert cli("status", "--json").lines() == []


def test_dry_run_as_json_lists_the_mechanisms_of_the_text(cli: Cli) -> None:
    text = cli("search", SETTING, "--dry-run").out
    (plan,) = cli("search", SETTING, "--dry-run", "--json").lines()
    assert plan["setting"] == SETTING and plan["rounds"] == 1
    numbered = [line.split() for line in text.splitlines() if line.startswith("  ")]
    named = [words[1] for words in numbered if words[0].endswith(".")]
    assert named == [*plan["mechanisms"], *plan["canaries"]]
    (bare,) = cli("search", SETTING, "--dry-run", "--json", "--canaries", "0").lines()
    assert bare["canaries"] == [] and bare["mechanisms"] == plan["mechanisms"]


def test_empty_ledgers_are_said_to_be_empty(cli: Cli) -> None:
    assert cli("status").out.startswith("no campaigns yet")
    ran = cli("status", "--json")
    assert ran.code == 0 and ran.out == ""


def test_status_lists_campaigns_and_units(cli: Cli, ledger: Ledger) -> None:
    (campaign,) = cli("status", "--json").lines()
    assert (campaign["id"], campaign["status"]) == (KEY.campaign, "stopped")
    (unit,) = cli("status", "2026", "--json").lines()
    assert (unit["phase"], unit["status"], unit["attempts"]) == ("measure", "failed", 1)
    assert KEY.campaign in cli("status").out
    shown = cli("status", KEY.campaign)
    assert shown.code == 0 and "measure:r1-00-a" in shown.out
    assert "[/usr/lib/x]" in shown.out


def test_report_of_a_campaign_without_one_says_how_to_go_on(cli: Cli, ledger: Ledger) -> None:
    ran = cli("report", "2026")
    assert ran.code == 2
    assert "stopped and has no report yet" in ran.err and "specfarm resume" in ran.err


def test_report_prints_the_stored_report_in_three_ways(cli: Cli, ledger: Ledger) -> None:
    report = sample_report()
    ledger.set_status(KEY.campaign, "finished", report.to_json())
    (line,) = cli("report", "2026", "--json").lines()
    assert report_from_json(line["report"]) == report_from_json(
        json.loads(json.dumps(report.to_json()))
    )
    for arguments in (["--markdown"], []):
        ran = cli("report", "2026", *arguments)
        assert ran.code == 0 and report.candidates[0].mechanism in ran.out


def test_resume_of_a_finished_campaign_shows_its_report(cli: Cli, ledger: Ledger) -> None:
    ledger.set_status(KEY.campaign, "finished", sample_report().to_json())
    lines = cli("resume", "2026", "--json").lines()
    assert [line["event"] for line in lines] == ["message", "report"]
    assert "nothing to resume" in lines[0]["text"]


def test_promote_without_an_export_says_why(cli: Cli, ledger: Ledger) -> None:
    ran = cli("promote", "2026")
    assert ran.code == 2 and f"specfarm report {KEY.campaign}" in ran.err


def test_memory_lists_every_catalogue_folder(cli: Cli) -> None:
    folders = {path.parent.name for path in CATALOGUE.glob("*/mechanism.toml")}
    rows = cli("memory", "list", "--json", "--setting", SETTING).lines()
    assert len(rows) == len(folders)
    for row in rows:
        assert (row["unmet"] is None) == row["applies"]
    text = cli("memory", "list")
    assert text.code == 0 and all(row["name"] in text.out for row in rows)
    for row in rows:
        (shown,) = cli("memory", "show", row["name"], "--json").lines()
        assert shown["diff"] or shown["knobs"]
        printed = cli("memory", "show", row["name"])
        assert printed.code == 0
        assert shown["hypothesis"].split()[0] in printed.out and shown["diff"] in printed.out


def test_doctor_checks_a_setting(cli: Cli) -> None:
    rows = cli("doctor", SETTING, "--json").lines()
    states = {row["what"]: row["state"] for row in rows}
    assert {"python", "torch", "disk", "git", "setting", "memory", "engine.name"} <= states.keys()
    assert states["setting"] == states["engine.name"] == states["torch"] == "ok"
    for arguments in ([SETTING, "--json"], [SETTING], []):
        ran = cli("doctor", *arguments)
        missing = [row for row in rows if row["state"] == "missing"]
        assert ran.code == (2 if missing else 0)


def test_doctor_fails_where_something_needed_is_missing(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    rows = {row["what"]: row for row in cli("doctor", "--json").lines()}
    assert rows["git"]["state"] == "missing" and rows["git"]["remedy"]
    assert rows["g++"]["state"] == "note" and rows["g++"]["remedy"]
    assert cli("doctor").code == 2


def test_doctor_misses_the_gpu_of_a_gpu_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    setting = load_setting(SETTING)
    gpu = setting.model_copy(
        update={
            "hardware": setting.hardware.model_copy(update={"gpu": "h100"}),
            "engine": setting.engine.model_copy(update={"name": "warp"}),
        }
    )
    # An H200 is never taken for an H100.
    monkeypatch.setattr("farm.doctor.present_gpus", lambda: [Gpu("NVIDIA H200", 150.0)])
    found = {check.what: check for check in checks(gpu)}
    assert found["GPU h100"].state == "missing" and "H100" in found["GPU h100"].remedy
    assert found["engine.name"].state == "missing" and "native" in found["engine.name"].remedy


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90), ("30m", 1800), ("1.5h", 5400), ("2", 120), (" 2 m ", 120), ("0.5m", 30)],
)
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration(text, "--budget") == seconds


@pytest.mark.parametrize("text", ["", "m", "1d", "-1m", "1e3", "1m30s", "inf", "1,5h"])
def test_what_is_not_a_duration(text: str) -> None:
    with pytest.raises(SpecfarmError, match="--budget"):
        parse_duration(text, "--budget")


def test_options_survive_the_ledger() -> None:
    options = SearchOptions(3, 120.0, ("memory", "claude"), 1, 4)
    assert SearchOptions.from_json(json.loads(json.dumps(options.to_json()))) == options
