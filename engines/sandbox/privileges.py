"""What every engine gives up, whatever the level: capabilities, new privileges, room to grow."""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import struct
from pathlib import Path

from engines.sandbox.syscalls import call, known_machine, prctl

_NO_NEW_PRIVS, _DROP_BOUND, _AMBIENT, _CLEAR_AMBIENT = 38, 24, 47, 4
_CAPABILITY_VERSION_3 = 0x20080522

OPEN_FILES = 65_536
FILE_BYTES = 64 << 30
NEW_THREADS = 4096


def apply_limits() -> None:
    """No core dumps, files of at most 64 GiB, at most 65,536 open files, at most 4,096 threads more
    than the machine runs now (the limit counts all of the user's; root is exempt by the kernel),
    new files for their owner only."""
    os.umask(0o077)
    # "running/all": all threads of the machine are no fewer than this user's.
    threads = int(Path("/proc/loadavg").read_text().split()[3].split("/")[1])
    for kind, limit in (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_NOFILE, OPEN_FILES),
        (resource.RLIMIT_FSIZE, FILE_BYTES),
        (resource.RLIMIT_NPROC, threads + NEW_THREADS),
    ):
        _, hard = resource.getrlimit(kind)
        lowest = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
        resource.setrlimit(kind, (lowest, lowest))


def drop_privileges() -> None:
    """No set-uid program has an effect from here on, and root is a user without capabilities: it
    cannot set the clock, mount, trace, raise a limit, or read what file modes forbid.

    Raises:
        OSError: the kernel refused.
    """
    prctl(_NO_NEW_PRIVS, 1)
    # Kernels have some 41 capabilities; one that cannot drop them has none to lose.
    with contextlib.suppress(OSError):
        for capability in range(64):
            prctl(_DROP_BOUND, capability)
    with contextlib.suppress(OSError):
        prctl(_AMBIENT, _CLEAR_AMBIENT)
    if known_machine():
        header = ctypes.create_string_buffer(struct.pack("=Ii", _CAPABILITY_VERSION_3, 0))
        none = ctypes.create_string_buffer(24)
        call("capset", ctypes.addressof(header), ctypes.addressof(none))
