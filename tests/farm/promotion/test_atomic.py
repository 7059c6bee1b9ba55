from pathlib import Path

import pytest

from farm.promotion import atomic
from farm.promotion.atomic import recover, replaced_file, replaced_folder


def write(target: Path, text: str) -> None:
    with replaced_folder(target) as fresh:
        (fresh / "file").write_text(text)


@pytest.mark.parametrize("can_exchange", [True, False])
def test_new_content_takes_the_place_and_nothing_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, can_exchange: bool
) -> None:
    if not can_exchange:
        monkeypatch.setattr(atomic, "_exchange", lambda one, other: False)
    target = tmp_path / "deep" / "final"
    for text in ("one", "two", "three"):
        write(target, text)
        assert (target / "file").read_text() == text
        assert [p.name for p in target.parent.iterdir()] == ["final"]


def test_an_error_leaves_the_old_folder(tmp_path: Path) -> None:
    target = tmp_path / "final"
    write(target, "old")
    with pytest.raises(ValueError, match="half"), replaced_folder(target) as fresh:
        (fresh / "file").write_text("new")
        raise ValueError("half")
    assert (target / "file").read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]


def test_death_between_the_two_renames_is_recovered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "final"
    write(target, "old")
    monkeypatch.setattr(atomic, "_exchange", lambda one, other: False)
    real, calls = Path.rename, []

    def rename(self: Path, other: Path) -> Path:
        calls.append(other)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return real(self, other)

    monkeypatch.setattr(Path, "rename", rename)
    with pytest.raises(KeyboardInterrupt):
        write(target, "new")
    assert not target.exists()
    monkeypatch.setattr(Path, "rename", real)
    recover(target)
    assert (target / "file").read_text() == "old"
    write(target, "newer")
    assert [p.name for p in tmp_path.iterdir()] == ["final"]


def test_a_reader_does_not_disturb_a_writer(tmp_path: Path) -> None:
    target = tmp_path / "final"
    with replaced_folder(target) as fresh:
        recover(target)
        (fresh / "file").write_text("x")
    assert (target / "file").read_text() == "x"


def test_a_file_is_replaced_whole_and_nothing_is_left(tmp_path: Path) -> None:
    target = tmp_path / "final" / "certificate.json"
    target.parent.mkdir()
    (tmp_path / ".final-certificate.json-1").write_text("left by a killed run")
    for content in (b"one", b"two"):
        replaced_file(target, content)
        assert target.read_bytes() == content
    assert [p.name for p in tmp_path.iterdir()] == ["final"]
    assert [p.name for p in target.parent.iterdir()] == ["certificate.json"]
