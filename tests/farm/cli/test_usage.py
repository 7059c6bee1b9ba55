"""What a user can get wrong: exit code 2, one sentence, a remedy, never a traceback."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from settings.paths import checkout_root
from tests.farm.cli.conftest import Cli

SETTING = "cpu_c1_smollm2-135m_ngram"
UNKNOWN_ENGINE = "tests/data/unknown_engine"

MISTAKES = [
    (["search", "nosuch"], "no setting is named 'nosuch'", SETTING),
    (["search", "./nowhere/setting.toml"], "does not exist", "setting.toml"),
    (["search", SETTING, "--budget", "soon"], "--budget: 'soon' is not a duration", "30m"),
    (["search", SETTING, "--budget", "-5m"], "--budget", "30m"),
    (["search", SETTING, "--budget", "nan"], "--budget", "30m"),
    (["search", SETTING, "--budget", "5s"], "--budget: 5 s buys no candidate", "1m"),
    (["search", SETTING, "--rounds", "0"], "--rounds: 0", "1 or more"),
    (["search", SETTING, "--rounds", "many"], "--rounds", "--help"),
    (["search", SETTING, "--workers", "0"], "--workers: 0", "1 or more"),
    (["search", SETTING, "--canaries", "-1"], "--canaries: -1", "0 to 6"),
    (["search", UNKNOWN_ENGINE, "--dry-run"], "engine.name = 'nativ'", "Did you mean 'native'?"),
    (["search", UNKNOWN_ENGINE], "engine.name = 'nativ'", "Did you mean 'native'?"),
    (["search", SETTING, "--explorers", "memory,oracle"], "'oracle' is not an explorer", "memory"),
    (["search"], "setting", "--help"),
    (["search", SETTING, "--bogus"], "--bogus", "--help"),
    (["frobnicate"], "frobnicate", "--help"),
    (["status", "--bogus"], "--bogus", "--help"),
    (["status", "nosuch"], "'nosuch' is not a campaign", "none yet"),
    (["report", "nosuch"], "'nosuch' is not a campaign", "none yet"),
    (["resume", "nosuch"], "'nosuch' is not a campaign", "none yet"),
    (["promote", "nosuch"], "'nosuch' is not a campaign", "none yet"),
    (["evaluate", "nosuch", "--commit", "abc"], "no setting is named", SETTING),
    (["evaluate", SETTING], "none was given", "--patch, --tree, --commit"),
    (
        ["evaluate", SETTING, "--patch", "a", "--tree", "b"],
        "--patch and --tree were given",
        "exactly one",
    ),
    (["evaluate", SETTING, "--patch", "no.patch"], "no.patch is not a file", "unified diff"),
    (["evaluate", SETTING, "--patch", "/dev/null"], "/dev/null is not a file", "unified diff"),
    (["evaluate", SETTING, "--tree", "nowhere"], "nowhere is not a folder", "root"),
    (["memory", "show", "nosuch"], "no mechanism 'nosuch'", "Known"),
    (["memory", "list", "--setting", "nosuch"], "no setting is named", SETTING),
    (["certify", "nosuch"], "no setting is named", SETTING),
    (["certify", SETTING, "--seconds", "soon"], "--seconds: 'soon' is not a duration", "30m"),
    (["certify", SETTING, "--seconds", "0.1s"], "--seconds: 0.1s times nothing", "at least 1s"),
    (["certify", SETTING, "--folder", "nowhere"], "nowhere holds no engine.lock", "folder"),
    (["certify", SETTING, "--checkout", "nowhere"], "does not exist", "setting.toml"),
    (["certify", f"{SETTING}-fp32"], "has no promoted engine", "specfarm search"),
    (["doctor", "nosuch"], "no setting is named", SETTING),
    (["stop", "port"], "port", "--help"),
    (["stop", "70000"], "port", "65535"),
    (["serve", SETTING, "stock", "--port", "0"], "--port", "or equal to 1"),
    (["serve", SETTING, "stock", "--port", "99999"], "--port", "65535"),
    (["ui", "--port", "-1"], "--port", "or equal to 1"),
    (["bench", SETTING, "stock", "--label", "final-1"], "names the arm final, not stock", "stock-"),
    (["evaluate", SETTING, "--tree", "tests/data/settings"], "no engine.toml", "root"),
]


@pytest.mark.parametrize(("arguments", "what", "remedy"), MISTAKES)
def test_a_mistake_is_named_with_its_remedy(
    cli: Cli, arguments: list[str], what: str, remedy: str
) -> None:
    ran = cli(*arguments)
    assert ran.code == 2
    assert ran.out == ""
    assert ran.err.startswith("specfarm: ") and ran.err.count("\n") == 1
    assert what in ran.err and remedy in ran.err


@pytest.mark.parametrize(
    "arguments",
    [case[0] for case in MISTAKES if case[0][0] not in ("promote", "stop", "serve", "ui", "bench")],
)
def test_with_json_a_mistake_is_one_json_line(cli: Cli, arguments: list[str]) -> None:
    ran = cli(*arguments, "--json")
    assert ran.code == 2
    (line,) = ran.lines()
    assert line["event"] == "error" and line["message"] in ran.err


def test_an_empty_patch_costs_no_baseline(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "empty.patch").write_text("\n")
    ran = cli("evaluate", SETTING, "--patch", str(tmp_path / "empty.patch"))
    assert ran.code == 2 and "empty.patch is empty. Give a unified diff" in ran.err


def test_a_mistake_leaves_no_campaign_behind(cli: Cli) -> None:
    cli("search", SETTING, "--explorers", "oracle")
    cli("evaluate", SETTING, "--patch", "no.patch")
    cli("evaluate", SETTING, "--tree", "nowhere")
    assert cli("status", "--json").lines() == []


@pytest.mark.parametrize("arguments", [[], ["memory"]])
def test_no_command_shows_help(cli: Cli, arguments: list[str]) -> None:
    ran = cli(*arguments)
    assert ran.code == 2
    assert "Usage" in ran.out and ran.err == ""


@pytest.mark.parametrize("command", ["", "search", "evaluate", "doctor", "memory"])
def test_help_is_not_an_error(cli: Cli, command: str) -> None:
    ran = cli(*([command] if command else []), "--help")
    assert ran.code == 0 and "Usage" in ran.out


def test_a_data_folder_that_is_a_file_is_an_environment_error(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("SPECFARM_DATA", str(tmp_path / "file"))
    for arguments in (["status"], ["doctor"], ["report", "x"]):
        ran = cli(*arguments)
        assert ran.code == 2 and "SPECFARM_DATA" in ran.err


def test_a_broken_ledger_is_an_environment_error(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "data" / "work").mkdir(parents=True)
    (tmp_path / "data" / "work" / "ledger.sqlite").write_bytes(b"not a database at all" * 100)
    ran = cli("status")
    assert ran.code == 2 and "DatabaseError" in ran.err


def test_as_a_program_the_exit_code_reaches_the_shell(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "farm", "status", "nosuch", "--json"],
        cwd=checkout_root(),
        env={"PATH": "/usr/bin:/bin", "SPECFARM_DATA": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 2
    assert done.stdout.startswith('{"event": "error"')
    assert done.stderr.startswith("specfarm: CAMPAIGN")


def test_doctor_names_an_unknown_engine_and_the_nearest(cli: Cli) -> None:
    ran = cli("doctor", UNKNOWN_ENGINE, "--json")
    (row,) = [row for row in ran.lines() if row["what"] == "engine.name"]
    assert ran.code == 2
    assert (row["state"], row["found"]) == ("missing", "nativ")
    assert "Did you mean 'native'?" in row["remedy"]
