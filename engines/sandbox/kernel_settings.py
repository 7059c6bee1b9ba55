"""Kernel settings in /proc and /sys: files that root may write even without any capability.

In a container they are mostly read-only already, and to other users they always are. Otherwise root
gets a mount namespace of its own in which they are (mount_namespaces(7)), as in bubblewrap.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from pathlib import Path

from engines.sandbox.syscalls import call, known_machine

IN_PROC = ("/proc/sys", "/proc/sysrq-trigger", "/proc/irq", "/proc/bus", "/proc/fs")
_KERNEL_OBJECTS = "/sys"
_NEW_MOUNT_NAMESPACE = 0x20000
_READ_ONLY, _REMOUNT, _BIND, _RECURSIVE, _SLAVE = 1, 32, 4096, 1 << 14, 1 << 19
_SYS_ADMIN = 21


def can_be_protected() -> bool:
    """Whether `protect` has nothing to do here, or is able to do it."""
    if not any(_writable()):
        return True
    status = Path("/proc/self/status").read_text().splitlines()
    (capabilities,) = (line.split()[1] for line in status if line.startswith("CapEff:"))
    return known_machine() and bool(int(capabilities, 16) >> _SYS_ADMIN & 1)


def protect() -> None:
    """Make them read-only for this process and all it starts. Before privileges are dropped.

    Raises:
        OSError: the kernel refused.
    """
    found = list(_writable())
    if not found:
        return
    call("unshare", _NEW_MOUNT_NAMESPACE)
    # Mounts made outside still arrive; none made here leaves.
    _mount("none", "/", _RECURSIVE | _SLAVE)
    for path in found:
        if not path.startswith(_KERNEL_OBJECTS):
            _mount(path, path, _BIND)
        _mount("none", path, _REMOUNT | _BIND | _READ_ONLY)


def _writable() -> Iterator[str]:
    if os.geteuid() != 0:
        return
    for path in (*IN_PROC, *_mounted_kernel_objects()):
        try:
            if not os.statvfs(path).f_flag & os.ST_RDONLY:
                yield path
        except FileNotFoundError:
            continue


def _mounted_kernel_objects() -> list[str]:
    """/sys and what is mounted below it (control groups, tracing)."""
    points = (line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines())
    return sorted({p for p in points if f"{p}/".startswith(f"{_KERNEL_OBJECTS}/")})


def _mount(source: str, target: str, flags: int) -> None:
    names = [ctypes.create_string_buffer(os.fsencode(name)) for name in (source, target)]
    call("mount", *map(ctypes.addressof, names), 0, flags, 0)
