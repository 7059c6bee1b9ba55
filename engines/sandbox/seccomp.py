"""A seccomp filter for what Landlock has no rule for: sockets other than TCP, tracing, namespaces,
clocks, other processes' scheduling (seccomp(2); the filter is classic BPF over `seccomp_data`).

It sees numbers, never what a pointer points to: a call whose meaning lies behind a pointer is
refused whole (`connect`, `clone3`) or not at all.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
from collections.abc import Iterable, Sequence

from engines.sandbox.plan import SandboxPlan
from engines.sandbox.syscalls import call, known_machine, numbers

Instruction = tuple[int, int, int, int]

_LOAD, _AND, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x54, 0x15, 0x35, 0x45, 0x06
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_NUMBER_AT, _ARCHITECTURE_AT = 0, 4
_ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_X32_BIT = 0x40000000
_SET_FILTER, _ACTION_AVAILABLE, _LEAVE_SPECULATION_ALONE = 1, 2, 4

_NAMESPACES = 0x7E020000
_FAST_OPEN = 0x20000000
_UNIX, _INET, _INET6, _NETLINK = 1, 2, 10, 16
_STREAM, _SEQPACKET, _TYPE_MASK, _TCP = 1, 5, 0xF, 6

REFUSED = (
    *("ptrace", "process_vm_readv", "process_vm_writev", "process_madvise", "pidfd_getfd"),
    *("pidfd_send_signal", "tkill", "userfaultfd", "perf_event_open", "bpf", "io_uring_setup"),
    *("mount", "umount2", "pivot_root", "chroot", "move_mount", "open_tree", "mount_setattr"),
    *("fsopen", "fsconfig", "fsmount", "setns", "unshare", "open_by_handle_at", "fanotify_init"),
    *("clock_settime", "settimeofday", "adjtimex", "clock_adjtime"),
    *("keyctl", "add_key", "request_key", "kexec_load", "kexec_file_load", "reboot", "acct"),
    *("init_module", "finit_module", "delete_module", "swapon", "swapoff", "syslog"),
    *("setpriority", "sched_setscheduler", "sched_setparam", "sched_setattr", "ioprio_set"),
    "migrate_pages",
)
_SENT_TO_A_PROCESS = ("kill", "tgkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo", "pidfd_open")


def works() -> bool:
    """Whether this kernel takes a filter from us."""
    if not known_machine():
        return False
    action = ctypes.c_uint32(_ERRNO)
    try:
        call("seccomp", _ACTION_AVAILABLE, 0, ctypes.addressof(action))
    except OSError:
        return False
    return True


def refuses_connect(plan: SandboxPlan) -> bool:
    """An engine that needs no connection of its own may not call connect(2): named Unix sockets
    (a container daemon's, Ray's) are out of reach too, for which Landlock has no rule."""
    return not plan.internal_ports


def build_filter(plan: SandboxPlan, machine: str, spared: Sequence[int]) -> tuple[Instruction, ...]:
    """The program for `machine`.

    Args:
        spared: processes the engine may not signal: its keeper and the farm.
    """
    known = numbers(machine)
    # What is called while decoding comes first.
    guarded = {
        "sendto": _refuse_bits(3, _FAST_OPEN),
        "sendmsg": _refuse_bits(2, _FAST_OPEN),
        "sendmmsg": _refuse_bits(3, _FAST_OPEN),
        "clone": _refuse_bits(0, _NAMESPACES),
        # ENOSYS: libc then uses clone, whose flags are in a register.
        "clone3": [_refuse(errno.ENOSYS)],
        "socket": _some_sockets(any_unix=not refuses_connect(plan)),
        "prlimit64": [_load(0), (_EQUAL, 1, 0, 0), _refuse(), _allow()],
        "sched_setaffinity": _refuse_values(0, spared),
        **{name: _refuse_values(0, _groups_too(spared)) for name in _SENT_TO_A_PROCESS},
    }
    if not refuses_connect(plan):
        # ZeroMQ ends its process where this fails: told that it was done, and nothing is.
        guarded["sched_setscheduler"] = [_refuse(0)]
    refused = [name for name in REFUSED if name not in guarded]
    if refuses_connect(plan):
        refused.append("connect")
    if plan.landlock_abi < 3:
        refused.append("truncate")
    program: list[Instruction] = [
        (_LOAD, 0, 0, _ARCHITECTURE_AT),
        (_EQUAL, 1, 0, _ARCHITECTURES[machine]),
        _refuse(),
        (_LOAD, 0, 0, _NUMBER_AT),
    ]
    if machine == "x86_64":
        program += [(_AT_LEAST, 0, 1, _X32_BIT), _refuse()]
    for name, block in (*guarded.items(), *((name, [_refuse()]) for name in refused)):
        program += [(_EQUAL, 0, len(block), known[name]), *block]
    return (*program, _allow())


def install(plan: SandboxPlan, spared: Sequence[int]) -> None:
    """Apply the filter to this process and all it starts. Needs no_new_privs.

    Raises:
        OSError: the kernel refused it.
    """
    program = build_filter(plan, os.uname().machine, spared)
    code = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *step) for step in program))
    header = ctypes.create_string_buffer(
        struct.pack("@HP", len(program), ctypes.addressof(code)), struct.calcsize("@HP")
    )
    # Otherwise kernels before 5.16 switch store bypass off for the engine, which slows it down.
    call("seccomp", _SET_FILTER, _LEAVE_SPECULATION_ALONE, ctypes.addressof(header))


def _groups_too(pids: Iterable[int]) -> tuple[int, ...]:
    """The processes, the groups they lead, and -1: everyone."""
    return (-1, *(signed for pid in pids for signed in (pid, -pid)))


def _load(argument: int) -> Instruction:
    # The low half of a 64-bit argument; both machines are little-endian.
    return (_LOAD, 0, 0, 16 + 8 * argument)


def _allow() -> Instruction:
    return (_RETURN, 0, 0, _ALLOW)


def _refuse(number: int = errno.EPERM) -> Instruction:
    return (_RETURN, 0, 0, _ERRNO | number)


def _refuse_bits(argument: int, bits: int) -> list[Instruction]:
    return [_load(argument), (_ANY_BIT, 0, 1, bits), _refuse(), _allow()]


def _refuse_values(argument: int, values: Sequence[int]) -> list[Instruction]:
    tests = [(_EQUAL, len(values) - i, 0, v & 0xFFFFFFFF) for i, v in enumerate(values)]
    return [_load(argument), *tests, _allow(), _refuse()]


def _some_sockets(*, any_unix: bool) -> list[Instruction]:
    """socket(2): TCP; Unix sockets that would have to be connected (CUDA binds a SEQPACKET one when
    it starts), and for engines that connect datagrams too (NCCL); routing netlink, which only reads
    without privileges (NCCL lists the network interfaces with it)."""
    unix, internet, netlink, allowed, refused = 5, 9, 14, 16, 17

    def on(value: int, here: int, yes: int = 0, no: int = 0) -> Instruction:
        """Compare; go on at `yes` or `no` (0: the next instruction)."""
        return (_EQUAL, yes and yes - here - 1, no and no - here - 1, value)

    kind = [_load(1), (_AND, 0, 0, _TYPE_MASK)]
    return [
        _load(0),
        on(_NETLINK, 1, yes=netlink),
        on(_UNIX, 2, yes=allowed if any_unix else unix),
        on(_INET, 3, yes=internet),
        on(_INET6, 4, yes=internet, no=refused),
        *kind,
        on(_STREAM, 7, yes=allowed),
        on(_SEQPACKET, 8, yes=allowed, no=refused),
        *kind,
        on(_STREAM, 11, no=refused),
        _load(2),
        on(_TCP, 13, yes=allowed),
        _load(2),
        on(0, 15, no=refused),
        _allow(),
        _refuse(),
    ]
