"""The filter's program for both machines, run by a small interpreter of classic BPF written from
bpf(4) and compared with the policy in plain Python; the call numbers against the headers."""

from __future__ import annotations

import errno
import re
import socket
from dataclasses import replace
from pathlib import Path

import pytest

from engines.sandbox.plan import SandboxPlan
from engines.sandbox.seccomp import REFUSED, Instruction, build_filter
from engines.sandbox.syscalls import MACHINES, numbers

PLAN = SandboxPlan(
    command=("x",),
    variables={},
    owner=500,
    ready_fd=3,
    cpus=(),
    required=(),
    readable=(),
    listable=(),
    writable=(),
    devices=(),
    port=30000,
    internal_ports=(),
    landlock_abi=7,
    seccomp=True,
    protect_settings=False,
)
ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
KEEPER, FARM = 600, 500
ALLOWED = -1


def run(program: tuple[Instruction, ...], architecture: int, number: int, *arguments: int) -> int:
    """The errno that the call gets; ALLOWED when it goes through."""
    words = {0: number, 4: architecture}
    for i, argument in enumerate((*arguments, 0, 0, 0, 0, 0, 0)[:6]):
        words[16 + 8 * i] = argument & 0xFFFFFFFF
        words[20 + 8 * i] = (argument >> 32) & 0xFFFFFFFF
    accumulator, at = 0, 0
    while True:
        code, yes, no, k = program[at]
        at += 1
        if code == 0x20:
            accumulator = words[k]
        elif code == 0x54:
            accumulator &= k
        elif code == 0x06:
            return ALLOWED if k == 0x7FFF0000 else k & 0xFFFF
        else:
            true = {
                0x15: accumulator == k,
                0x35: accumulator >= k,
                0x45: bool(accumulator & k),
            }[code]
            at += yes if true else no


class Filter:
    def __init__(self, machine: str, plan: SandboxPlan = PLAN) -> None:
        self.machine, self.numbers = machine, numbers(machine)
        self.program = build_filter(plan, machine, (KEEPER, FARM))

    def __call__(self, name: str, *arguments: int) -> int:
        return run(self.program, ARCHITECTURES[self.machine], self.numbers[name], *arguments)


@pytest.fixture(params=MACHINES)
def filtered(request: pytest.FixtureRequest) -> Filter:
    return Filter(request.param)


def test_refused_calls(filtered: Filter) -> None:
    for name in (*REFUSED, "connect"):
        assert filtered(name) == errno.EPERM, name
    assert filtered("clone3") == errno.ENOSYS
    assert filtered("truncate") == ALLOWED
    known = set(filtered.numbers.values())
    for number in set(range(600)) - known:
        got = run(filtered.program, ARCHITECTURES[filtered.machine], number, 1, 2, 3, 4, 5, 6)
        assert got == ALLOWED, number


@pytest.mark.parametrize("machine", MACHINES)
def test_what_the_plan_changes(machine: str) -> None:
    connects = Filter(machine, replace(PLAN, internal_ports=(4000,)))
    assert connects("connect") == connects("socket", socket.AF_UNIX, 2) == ALLOWED
    assert connects("socket", socket.AF_INET, 2) == errno.EPERM
    # Answered with success, and not carried out.
    assert connects("sched_setscheduler") == 0
    assert Filter(machine, replace(PLAN, landlock_abi=2))("truncate") == errno.EPERM


def test_sockets(filtered: Filter) -> None:
    for family in range(50):
        for kind in (*range(1, 11), socket.SOCK_STREAM | socket.SOCK_CLOEXEC | 0x800):
            for protocol in (0, 1, 6, 17, 132, 262):
                tcp = family in (2, 10) and kind & 0xF == 1 and protocol in (0, 6)
                unix = family == 1 and kind & 0xF in (1, 5)
                lawful = tcp or unix or (family == 16 and protocol == 0)
                expected = ALLOWED if lawful else errno.EPERM
                assert filtered("socket", family, kind, protocol) == expected


def test_processes(filtered: Filter) -> None:
    spared = {KEEPER, FARM}
    for pid in (*range(0, 1000, 50), -1, -KEEPER, -FARM, -50, 2**32 - 1):
        signed = pid - 2**32 if pid >= 2**31 else pid
        for name in ("kill", "tgkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo", "pidfd_open"):
            refused = signed == -1 or abs(signed) in spared
            assert filtered(name, pid, 9) == (errno.EPERM if refused else ALLOWED), (name, pid)
        expected = errno.EPERM if pid in spared else ALLOWED
        assert filtered("sched_setaffinity", pid) == expected
        assert filtered("prlimit64", pid) == (ALLOWED if pid == 0 else errno.EPERM)


def test_flags(filtered: Filter) -> None:
    thread = 0x3D0F00  # what pthread_create passes
    vfork = 0x4111
    assert filtered("clone", thread) == filtered("clone", vfork) == ALLOWED
    for bit in (0x20000, *(1 << i for i in range(25, 31))):
        assert filtered("clone", thread | bit) == errno.EPERM
    fast_open = 0x20000000
    for name, place in (("sendto", 3), ("sendmsg", 2), ("sendmmsg", 3)):
        flags = [0] * 6
        flags[place] = 0x4000
        assert filtered(name, *flags) == ALLOWED
        flags[place] |= fast_open
        assert filtered(name, *flags) == errno.EPERM


@pytest.mark.parametrize("machine", MACHINES)
def test_other_architectures_are_refused(machine: str) -> None:
    program = build_filter(PLAN, machine, ())
    assert run(program, 0x40000003, 1) == errno.EPERM  # i386
    x32 = run(program, ARCHITECTURES[machine], 0x40000001)
    assert x32 == (errno.EPERM if machine == "x86_64" else ALLOWED)


HEADERS = {
    "x86_64": Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h"),
    "aarch64": Path("/usr/include/asm-generic/unistd.h"),
}


@pytest.mark.parametrize("machine", MACHINES)
def test_numbers_are_the_kernels(machine: str) -> None:
    header = HEADERS[machine]
    if not header.exists():
        pytest.skip(f"no {header} (apt-get install linux-libc-dev)")
    found = dict(
        re.findall(r"#define __NR(?:3264)?_(\w+)\s+(\d+)", header.read_text()),
    )
    for name, number in numbers(machine).items():
        assert int(found[name]) == number, name
