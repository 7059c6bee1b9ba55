"""A campaign's setting is found from any copy of the checkout, not only where it was started."""

from __future__ import annotations

from pathlib import Path

import pytest

import settings.loading as loading
from farm.campaign.options import SearchOptions
from farm.ledger import Ledger
from farm.search.session import new_campaign
from settings.loading import find_setting

ROOT = Path(__file__).resolve().parents[3]
TINY = "tests/data/settings/tiny"


def test_a_path_inside_the_checkout_is_kept_relative(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.sqlite")
    row = new_campaign(ledger, str(ROOT / TINY), SearchOptions())
    assert row.setting == TINY


def test_a_path_outside_stays_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "setting.toml").write_bytes((ROOT / TINY / "setting.toml").read_bytes())
    ledger = Ledger(tmp_path / "ledger.sqlite")
    monkeypatch.chdir(tmp_path)
    row = new_campaign(ledger, "./mine", SearchOptions())
    assert row.setting == str(folder)


def test_a_kept_path_is_found_from_another_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = tmp_path / "copy"
    (copy / TINY).mkdir(parents=True)
    (copy / TINY / "setting.toml").touch()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    monkeypatch.setattr(loading, "checkout_root", lambda: copy)
    assert find_setting(TINY) == copy / TINY / "setting.toml"
