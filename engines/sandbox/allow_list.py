"""Which folders an engine may read and change, as real paths, for whatever level applies them."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from settings.paths import checkout_root, data_root

EXTRA_VARIABLE = "SPECFARM_SANDBOX_READ"
"""Further folders that engines may read and execute from, separated by colons."""

_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/opt")
_PACKAGE_STORES = ("/nix", "/gnu")
_KERNEL = ("/proc", "/sys")
_DEVICES = ("null", "zero", "full", "random", "urandom")
_GPU_DEVICES = ("nvidia*", "dri", "kfd", "dxg", "infiniband", "gdrdrv")
SHARED_MEMORY = "/dev/shm"
_MOST_STEPS = 200


@dataclass(frozen=True)
class AllowList:
    """Real paths; everything below a folder is meant with it.

    Attributes:
        readable: read and execute.  listable: folders only some of whose entries are readable.
        writable: read, execute and change.  devices: device files, or folders of them.
        gpus: whether a GPU's are among the devices.
        links: where a symbolic link on the way to a readable path lies, and what it holds; only a
            file system that is put together anew needs them.
    """

    readable: tuple[str, ...]
    listable: tuple[str, ...]
    writable: tuple[str, ...]
    devices: tuple[str, ...]
    gpus: bool
    links: tuple[tuple[str, str], ...]

    def covers(self, path: str | Path) -> bool:
        """Whether the path may be read."""
        real = Path(path).resolve()
        return any(real.is_relative_to(root) for root in (*self.readable, *self.writable))

    def search_path(self, path: str) -> str:
        """The folders of a $PATH from which programs can be started."""
        return os.pathsep.join(p for p in path.split(os.pathsep) if p and self.covers(p))


def allow_list(
    tree: Path,
    model_dir: Path,
    writable: Iterable[Path],
    environment: Mapping[str, str] = os.environ,
    hidden: Iterable[Path] | None = None,
    also: Iterable[Path] = (),
) -> AllowList:
    """What one launch may touch.

    Args:
        tree: the engine's checkout.  model_dir: weights; links from it to other folders (as in the
            Hugging Face cache) are followed.  writable: its cache and scratch folders.
        environment: where CUDA_HOME, LD_LIBRARY_PATH and SPECFARM_SANDBOX_READ come from.
        hidden: folders that stay out of sight even below a readable one (default: the data folder,
            the checkout of specfarm, the user's home); what is asked for inside them is allowed.
        also: further folders to read: a drafter's weights, an environment of the engine's own.
    """
    out_of_sight = [path.resolve() for path in (_hidden() if hidden is None else hidden)]
    asked = [
        *map(Path, (*_SYSTEM, *_PACKAGE_STORES, *_KERNEL)),
        Path(sys.executable),
        *map(Path, {sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix}),
        *_named_by(environment),
        *also,
        tree,
        model_dir,
        *_linked_from(model_dir),
    ]
    readable: set[Path] = set()
    listable: set[Path] = set()
    links: dict[str, str] = {}
    for path in asked:
        links |= _links_to(path)
        _add(path.resolve(), out_of_sight, readable, listable, links)
    tops, gpus = _outermost(readable), _existing(_GPU_DEVICES)
    return AllowList(
        readable=tuple(map(str, tops)),
        listable=tuple(sorted(map(str, listable))),
        writable=tuple(sorted(str(path.resolve()) for path in writable)),
        devices=tuple(map(str, (*_existing(_DEVICES), *gpus))),
        gpus=bool(gpus),
        links=tuple(
            pair
            for pair in sorted(links.items())
            if not any(Path(pair[0]).is_relative_to(top) for top in tops)
        ),
    )


def _hidden() -> list[Path]:
    root = checkout_root()
    # Installed as a package, that folder is site-packages, and nothing in it is secret.
    is_checkout = (root / "pyproject.toml").exists()
    return [data_root(), Path.home(), *([root] if is_checkout else [])]


def _named_by(environment: Mapping[str, str]) -> Iterator[Path]:
    for name in ("CUDA_HOME", "LD_LIBRARY_PATH", EXTRA_VARIABLE):
        for part in environment.get(name, "").split(os.pathsep):
            if part.startswith("/"):
                yield Path(part)


def _linked_from(model_dir: Path) -> Iterator[Path]:
    """Where the links in a model's folder, and in the folders in it, lead."""
    for pattern in ("*", "*/*"):
        for path in model_dir.glob(pattern):
            if path.is_symlink():
                yield path.resolve()


def _add(
    real: Path,
    hidden: Iterable[Path],
    readable: set[Path],
    listable: set[Path],
    links: dict[str, str],
) -> None:
    if not real.exists() or real == Path("/"):
        return
    inside = [h for h in hidden if h != real and h.is_relative_to(real)]
    if not inside:
        readable.add(real)
        return
    listable.add(real)
    for child in _entries(real):
        if child.is_symlink():
            # To follow it would allow whatever it points to.
            links[str(child)] = str(child.readlink())
        elif child not in inside:
            _add(child, inside, readable, listable, links)


def _entries(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


def _links_to(path: Path) -> Iterator[tuple[str, str]]:
    """Every symbolic link that is followed on the way to `path`: where it really lies, and what it
    holds."""
    real, ahead = Path("/"), list(path.absolute().parts[1:])
    for _ in range(_MOST_STEPS):
        if not ahead:
            return
        part = ahead.pop(0)
        here = real.parent if part == ".." else real / part
        if not here.is_symlink():
            real = here
            continue
        target = here.readlink()
        yield str(here), str(target)
        if target.is_absolute():
            real = Path("/")
        ahead = [*(part for part in target.parts if part != "/"), *ahead]


def _outermost(paths: Iterable[Path]) -> list[Path]:
    found: list[Path] = []
    for path in sorted(paths):
        if not any(path.is_relative_to(top) for top in found):
            found.append(path)
    return found


def _existing(devices: Iterable[str]) -> list[Path]:
    return [path for pattern in devices for path in sorted(Path("/dev").glob(pattern))]
