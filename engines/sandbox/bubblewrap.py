"""bubblewrap: a file system put together from the allowed folders, and process and IPC namespaces
of its own (https://github.com/containers/bubblewrap). The network is the machine's: the farm must
reach the engine's port.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

from engines import exec_child
from engines.sandbox.allow_list import SHARED_MEMORY, AllowList, allow_list
from engines.sandbox.kernel_settings import IN_PROC

_OWN_CODE = "/run/specfarm"
_PROBE_TIMEOUT_S = 20.0


def keeper_command() -> tuple[str, ...]:
    """Starts the keeper, outside any namespace."""
    return (sys.executable, "-I", "-S", exec_child.__file__)


def wrapped_keeper_command(binary: str, allowed: AllowList, tree: Path) -> tuple[str, ...]:
    """Starts the keeper as process 1 of namespaces in which only `allowed` exists."""
    inner = (sys.executable, "-I", "-S", f"{_OWN_CODE}/engines/exec_child.py")
    return (*_namespaces(binary, allowed), "--chdir", str(tree.resolve()), "--", *inner)


@cache
def working_bubblewrap() -> str | None:
    """Path of a `bwrap` that can do here what we ask of it; None without one. Tried once."""
    binary = shutil.which("bwrap")
    if binary is None:
        return None
    here = Path(__file__).parent
    command = [*_namespaces(binary, allow_list(here, here, ())), "--", sys.executable]
    try:
        subprocess.run(
            [*command, "-I", "-S", "-c", "import os; assert os.getpid() == 1"],
            check=True,
            capture_output=True,
            stdin=subprocess.DEVNULL,
            timeout=_PROBE_TIMEOUT_S,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return binary


def _namespaces(binary: str, allowed: AllowList) -> list[str]:
    package = Path(exec_child.__file__).parent
    code = (package / "exec_child.py", package / "proc_files.py", package / "sandbox")
    command = [binary, "--die-with-parent", "--unshare-pid", "--unshare-ipc", "--as-pid-1"]
    command += ["--cap-drop", "ALL", "--tmpfs", "/tmp", "--proc", "/proc", "--dev", "/dev"]
    # A parent before what lies in it, or it would cover it.
    mounts = [("--ro-bind", path) for path in allowed.readable if path != "/proc"]
    mounts += [("--ro-bind", path) for path in IN_PROC if Path(path).exists()]
    mounts += [("--bind", path) for path in allowed.writable if path != SHARED_MEMORY]
    mounts += [("--dev-bind", path) for path in allowed.devices if not _given(path)]
    for option, path in sorted(mounts, key=lambda mount: mount[1]):
        command += [option, path, path]
    for link, target in allowed.links:
        command += ["--symlink", target, link]
    for part in code:
        command += ["--ro-bind", str(part), f"{_OWN_CODE}/engines/{part.name}"]
    return command


def _given(device: str) -> bool:
    """Whether `--dev` makes it."""
    return Path(device).name in ("null", "zero", "full", "random", "urandom")
