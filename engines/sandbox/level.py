"""Which level is in force, and in words what it stops and what it does not."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Literal, get_args

from engines.sandbox import kernel_settings, landlock, seccomp
from engines.sandbox.bubblewrap import working_bubblewrap
from engines.sandbox.errors import SandboxUnavailable
from settings.name_hint import name_hint

LevelName = Literal["bubblewrap", "landlock", "rlimits"]
VARIABLE = "SPECFARM_SANDBOX"
NAMES: tuple[LevelName, ...] = get_args(LevelName)
REMEDY = "apt-get install bubblewrap, or Linux 5.19 or newer with Landlock"


@dataclass(frozen=True)
class Facilities:
    """What this machine offers: Landlock's ABI (0: none), seccomp filters, a `bwrap` that works,
    and whether kernel settings can be kept from an engine (only root's might not)."""

    landlock_abi: int
    seccomp: bool
    bubblewrap: str | None
    settings: bool = True


@dataclass(frozen=True)
class SandboxLevel:
    """Attributes: `name`; `enforced` and `not_enforced`, in words, together always the same set;
    `landlock_abi` and `seccomp` as used; `bubblewrap`, the binary in use; `settings`, whether the
    kernel's are read-only to an engine by other means than Landlock."""

    name: LevelName
    enforced: tuple[str, ...]
    not_enforced: tuple[str, ...]
    landlock_abi: int
    seccomp: bool
    bubblewrap: str | None
    settings: bool

    @property
    def summary(self) -> str:
        """One line for people."""
        used = [f"Landlock ABI {self.landlock_abi}"] if self.landlock_abi else []
        used += ["seccomp"] if self.seccomp else []
        line = f"{self.name} ({', '.join(used)})" if used else self.name
        line += f": {', '.join(self.enforced)}"
        return f"{line}; not: {', '.join(self.not_enforced)}" if self.not_enforced else line


def active_level(
    environment: Mapping[str, str] = os.environ, *, connects: bool = False
) -> SandboxLevel:
    """The level that `$SPECFARM_SANDBOX` (default `auto`: the best that works) gives here.

    Args:
        connects: for an engine whose processes talk to each other over sockets of their own.

    Raises:
        SandboxUnavailable: no such level, or it does not work on this machine.
    """
    return choose(environment.get(VARIABLE) or "auto", facilities(), connects=connects)


@cache
def facilities() -> Facilities:
    """Tried once in a process."""
    abi = landlock.kernel_abi()
    usable = abi if abi >= landlock.LEAST_ABI else 0
    settings = kernel_settings.can_be_protected()
    return Facilities(usable, seccomp.works(), working_bubblewrap(), settings)


def choose(asked: str, found: Facilities, *, connects: bool = False) -> SandboxLevel:
    """The level `asked` for (or `auto`), on a machine with these facilities.

    Raises:
        SandboxUnavailable: as for `active_level`.
    """
    possible: list[LevelName] = ["rlimits"]
    if found.landlock_abi:
        possible.insert(0, "landlock")
    if found.bubblewrap:
        possible.insert(0, "bubblewrap")
    if asked == "auto":
        return _described(possible[0], found, connects)
    for name in NAMES:
        if name == asked:
            if name not in possible:
                raise SandboxUnavailable(f"{VARIABLE}={name} does not work here", _remedy(name))
            return _described(name, found, connects)
    raise SandboxUnavailable(
        f"{VARIABLE}={asked!r} is no sandbox level", name_hint(asked, ("auto", *NAMES))
    )


def _remedy(name: LevelName) -> str:
    if name == "bubblewrap":
        return "apt-get install bubblewrap; it needs user namespaces, or root"
    return "Needs Linux 5.19 or newer with landlock among the kernel's security modules (lsm=)"


def _described(name: LevelName, found: Facilities, connects: bool) -> SandboxLevel:
    abi = found.landlock_abi if name != "rlimits" else 0
    namespaces = name == "bubblewrap"
    filtered = found.seccomp
    unconnected = filtered and not connects
    stops = {
        "file system": namespaces or abi > 0,
        "TCP connections": unconnected or abi >= 4,
        "listening on other ports": abi >= 4,
        "UDP and raw sockets": filtered,
        "Unix sockets": unconnected or (namespaces and abi >= 6),
        "signals to the farm": namespaces or filtered or abi >= 6,
        "signals to other engines": namespaces or abi >= 6,
        "tracing": namespaces or filtered or abi > 0,
        "other processes' memory and environment": namespaces or abi > 0,
        "other processes' CPUs": namespaces,
        "new namespaces": filtered,
        "kernel settings": namespaces or abi > 0 or found.settings,
        "clocks and privileges": True,
        "leftover processes": True,
    }
    return SandboxLevel(
        name,
        tuple(what for what, stopped in stops.items() if stopped),
        tuple(what for what, stopped in stops.items() if not stopped),
        abi,
        filtered,
        found.bubblewrap if namespaces else None,
        namespaces or found.settings,
    )
