"""Landlock: an unprivileged process gives up files, TCP ports and signals, for good, for itself and
all it starts (https://docs.kernel.org/userspace-api/landlock.html; constants of linux/landlock.h).

Not covered by Landlock itself: stat, chmod, chown, xattr, utime; UDP; named Unix sockets.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import stat
from collections.abc import Iterable

from engines.sandbox.plan import SandboxPlan
from engines.sandbox.syscalls import call, known_machine

# Before ABI 2 no file can be moved to another folder, which compilers' caches do.
LEAST_ABI = 2

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = (1 << bit for bit in range(4))
_MAKE_CHAR, _MAKE_BLOCK = 1 << 6, 1 << 11
_TRUNCATE, _IOCTL_DEV = 1 << 14, 1 << 15
_ALL = (1 << 16) - 1
_READ = _EXECUTE | _READ_FILE | _READ_DIR
_CHANGE = _ALL & ~(_MAKE_CHAR | _MAKE_BLOCK | _IOCTL_DEV)
_DEVICE = _READ_FILE | _WRITE_FILE | _READ_DIR | _TRUNCATE | _IOCTL_DEV
_ON_A_FILE = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV
_BIND_TCP, _CONNECT_TCP = 1, 2
_SCOPE_ABSTRACT_UNIX, _SCOPE_SIGNAL = 1, 2
_RULE_PATH_BENEATH, _RULE_NET_PORT = 1, 2
_ASK_VERSION = 1


class _Ruleset(ctypes.Structure):
    _fields_ = [
        ("handled_access_fs", ctypes.c_uint64),
        ("handled_access_net", ctypes.c_uint64),
        ("scoped", ctypes.c_uint64),
    ]


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = [("allowed_access", ctypes.c_uint64), ("parent_fd", ctypes.c_int32)]


class _NetPort(ctypes.Structure):
    _fields_ = [("allowed_access", ctypes.c_uint64), ("port", ctypes.c_uint64)]


def kernel_abi() -> int:
    """The kernel's Landlock ABI; 0 where it has none, or another security policy forbids it."""
    if not known_machine():
        return 0
    try:
        return call("landlock_create_ruleset", 0, 0, _ASK_VERSION)
    except OSError:
        return 0


def file_rights(abi: int) -> int:
    """The file access rights that this ABI knows: refused unless a rule grants them."""
    newer = {2: 1 << 13, 3: _TRUNCATE, 5: _IOCTL_DEV}
    return ((1 << 13) - 1) | sum(bit for since, bit in newer.items() if abi >= since)


def restrict(plan: SandboxPlan) -> None:
    """Give up all that the plan does not allow. Needs no_new_privs.

    Raises:
        OSError: the kernel refused; nothing is to be run then.
    """
    abi = plan.landlock_abi
    rights = file_rights(abi)
    ruleset = _Ruleset(rights)
    size = 8
    if abi >= 4:
        ruleset.handled_access_net = _BIND_TCP | _CONNECT_TCP
        size = 16
    if abi >= 6:
        ruleset.scoped = _SCOPE_ABSTRACT_UNIX | _SCOPE_SIGNAL
        size = 24
    rules = call("landlock_create_ruleset", ctypes.addressof(ruleset), size, 0)
    try:
        _allow(rules, plan.readable, rights & _READ)
        _allow(rules, plan.listable, rights & _READ_DIR)
        _allow(rules, plan.writable, rights & _CHANGE)
        _allow(rules, plan.devices, rights & _DEVICE)
        if abi >= 4:
            _allow_port(rules, plan.port, _BIND_TCP)
            # Port 0: one of the kernel's choice, which peers are told of (gloo).
            if plan.internal_ports:
                _allow_port(rules, 0, _BIND_TCP)
            for port in plan.internal_ports:
                _allow_port(rules, port, _BIND_TCP | _CONNECT_TCP)
        call("landlock_restrict_self", rules, 0)
    finally:
        os.close(rules)


def _allow(rules: int, paths: Iterable[str], rights: int) -> None:
    for path in paths:
        # Gone since the plan was made: nothing to allow.
        with contextlib.suppress(FileNotFoundError):
            folder = os.open(path, os.O_PATH | os.O_CLOEXEC)
            try:
                is_folder = stat.S_ISDIR(os.fstat(folder).st_mode)
                rule = _PathBeneath(rights if is_folder else rights & _ON_A_FILE, folder)
                call("landlock_add_rule", rules, _RULE_PATH_BENEATH, ctypes.addressof(rule), 0)
            finally:
                os.close(folder)


def _allow_port(rules: int, port: int, rights: int) -> None:
    rule = _NetPort(rights, port)
    call("landlock_add_rule", rules, _RULE_NET_PORT, ctypes.addressof(rule), 0)
