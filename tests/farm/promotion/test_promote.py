import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engines.certificate import Status, certificate_bytes, sealed
from engines.errors import EngineError
from farm.promotion.errors import PromotionError
from farm.promotion.promote import final_dir, load_final, promote
from tests.farm.promotion.finals import SETTING, write_final

Damage = Callable[[Path], object]


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SPECFARM_DATA", str(tmp_path / "data"))
    home = tmp_path / "checkout" / "settings" / SETTING
    home.mkdir(parents=True)
    (home / "setting.toml").touch()
    return tmp_path / "checkout"


def resealed(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Changes the certificate and seals it again, as a forger would."""
    path = folder / "certificate.json"
    data = json.loads(path.read_text())
    change(data)
    path.write_bytes(certificate_bytes(sealed(data)))


def test_the_searchs_winner_is_copied_and_replaces_the_old_one(checkout: Path) -> None:
    write_final(final_dir(SETTING))
    target = promote(SETTING, checkout)
    assert target == checkout / "settings" / SETTING / "final"
    (target / "stray").write_text("x")
    write_final(final_dir(SETTING), max_new_tokens=7)
    promote(SETTING, checkout)
    assert load_final(target, SETTING).certificate["heldout"]["max_new_tokens"] == 7
    assert sorted(p.name for p in target.parent.iterdir()) == ["final", "setting.toml"]


@pytest.mark.parametrize("status", [Status.REPLAYED, "revoked"])
def test_only_a_certified_engine_is_promoted(checkout: Path, status: str) -> None:
    folder = write_final(final_dir(SETTING))
    resealed(folder, lambda data: data.update(status=str(status)))
    with pytest.raises(PromotionError, match=f"is {status}, not certified"):
        promote(SETTING, checkout)
    assert not (checkout / "settings" / SETTING / "final").exists()


def test_a_certification_travels_with_its_engine(checkout: Path) -> None:
    folder = write_final(final_dir(SETTING))
    (folder / "certification.json").write_text("{}")
    assert (promote(SETTING, checkout) / "certification.json").read_text() == "{}"


def edit_patch(folder: Path) -> None:
    path = next((folder / "patches").iterdir())
    path.write_text(path.read_text() + "\n")


def drop_bundle(folder: Path) -> None:
    (folder / "stock.bundle").unlink()


def add_patch(folder: Path) -> None:
    (folder / "patches" / "0003-more.patch").write_text("x")


def edit_certificate(folder: Path) -> None:
    path = folder / "certificate.json"
    path.write_text(path.read_text().replace('"max_new_tokens": 160', '"max_new_tokens": 161'))


def indent_certificate(folder: Path) -> None:
    path = folder / "certificate.json"
    path.write_text(path.read_text().replace("\n ", "\n  ", 1))


def other_seed(folder: Path) -> None:
    resealed(folder, lambda data: data["heldout"].update(seed="guess"))


def lost_lock(folder: Path) -> None:
    (folder / "engine.lock").unlink()


def torn_lock(folder: Path) -> None:
    (folder / "engine.lock").write_text('setting = "x"\n')


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (edit_patch, "sha256 differs from certificate.json's"),
        (drop_bundle, "stock.bundle is missing"),
        (add_patch, "0003-more.patch is not in the certificate"),
        (edit_certificate, "certificate_sha256 does not match its content"),
        (indent_certificate, "was rewritten since it was sealed"),
        (other_seed, "does not match its commitment"),
        (lost_lock, "holds no engine.lock"),
        (torn_lock, "engine is missing"),
    ],
)
def test_a_damaged_folder_is_refused_and_the_old_final_stays(
    checkout: Path, damage: Damage, message: str
) -> None:
    folder = write_final(final_dir(SETTING))
    target = promote(SETTING, checkout)
    before = (target / "certificate.json").read_bytes()
    damage(folder)
    with pytest.raises(EngineError, match=message):
        promote(SETTING, checkout)
    assert (target / "certificate.json").read_bytes() == before


def test_another_settings_engine_and_an_unknown_setting_are_refused(checkout: Path) -> None:
    folder = write_final(final_dir(SETTING))
    with pytest.raises(PromotionError, match=r"no setting\.toml"):
        promote("cpu_c1_other", checkout, folder)
    with pytest.raises(PromotionError, match="setting is"):
        load_final(folder, "cpu_c1_other")
