"""What an engine tries under each level: what the level says it stops is stopped, and what it says
it does not stop is not, so that neither list flatters."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import psutil
import pytest

from engines.engine_process import fresh_port
from engines.sandbox.level import SandboxLevel
from settings.paths import checkout_root, data_root

from .conftest import Probe

Probes = tuple[Probe, Probe]


def expect(level: SandboxLevel, what: str, outcome: tuple[bool, object]) -> None:
    assert what in level.enforced + level.not_enforced
    assert outcome[0] is (what in level.not_enforced), (what, outcome)


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """Someone else's file."""
    path = tmp_path / "ledger.sqlite"
    path.write_text("a held-out seed")
    return path


def test_files_of_others(level: SandboxLevel, probes: Probes, outside: Path) -> None:
    probe = probes[0]
    ledger = data_root() / "work" / "ledger.sqlite"
    ledger.write_text("a held-out seed")
    log = probe.engine.log
    for path in (outside, ledger, log, checkout_root() / "pyproject.toml"):
        expect(level, "file system", probe.attempt("read_file", path=str(path)))
    for folder in (outside.parent, data_root() / "work", checkout_root(), Path.home()):
        # bubblewrap alone makes the folders on the way to what is allowed, with nothing else in.
        if level.landlock_abi or not level.bubblewrap:
            expect(level, "file system", probe.attempt("list_folder", path=str(folder)))
    new = outside.with_name("new")
    expect(level, "file system", probe.attempt("write_file", path=str(new)))
    # In bubblewrap's own /tmp something may be written; here it must not appear.
    assert new.exists() is ("file system" in level.not_enforced)


def test_its_tree_can_be_read_but_not_changed(level: SandboxLevel, probes: Probes) -> None:
    tree = data_root() / "work" / "checkouts" / probes[0].engine.tree_hash
    assert probes[0].attempt("read_file", path=str(tree / "server.py"))[0]
    # Without capabilities root, too, is bound by the checkout's read-only mode.
    assert not probes[0].attempt("write_file", path=str(tree / "server.py"))[0]


def test_network(level: SandboxLevel, probes: Probes, listener: int) -> None:
    probe = probes[0]
    expect(level, "TCP connections", probe.attempt("connect", port=listener))
    expect(level, "TCP connections", probe.attempt("connect", port=probes[1].engine.port))
    if level.seccomp:
        assert not probe.attempt("fast_open", port=listener)[0]
    free = fresh_port("127.0.0.1")
    expect(level, "listening on other ports", probe.attempt("listen", port=free))
    expect(level, "UDP and raw sockets", probe.attempt("send_datagram", port=free))


def test_unix_sockets(level: SandboxLevel, probes: Probes, tmp_path: Path) -> None:
    # pytest's own paths may be too long for a socket.
    path = Path("/tmp") / f"specfarm-test-{os.getpid()}.sock"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        try:
            server.listen()
            expect(level, "Unix sockets", probes[0].attempt("connect_unix", path=str(path)))
        finally:
            path.unlink()


def test_other_processes(level: SandboxLevel, probes: Probes) -> None:
    probe, other = probes[0], probes[1].engine.pid
    farm, keeper = os.getpid(), psutil.Process(other).ppid()
    for pid in (farm, psutil.Process(probe.engine.pid).ppid()):
        expect(level, "signals to the farm", probe.attempt("send_signal", pid=pid))
    expect(level, "signals to other engines", probe.attempt("send_signal", pid=other))
    expect(level, "signals to other engines", probe.attempt("send_signal", pid=keeper))
    for pid in (other, farm):
        expect(level, "tracing", probe.attempt("trace", pid=pid))
    what = "other processes' memory and environment"
    expect(level, what, probe.attempt("read_file", path=f"/proc/{other}/environ"))
    # A keeper shows its environment to nobody, whatever the level.
    assert not probe.attempt("read_file", path=f"/proc/{keeper}/environ")[0]
    expect(level, "other processes' CPUs", probe.attempt("set_affinity", pid=other))


def test_kernel_state(level: SandboxLevel, probes: Probes) -> None:
    expect(level, "new namespaces", probes[0].attempt("make_namespace"))
    expect(level, "clocks and privileges", probes[0].attempt("set_clock"))
    for path in ("/proc/sys/kernel/panic", "/sys/module/printk/parameters/time"):
        if Path(path).exists():
            expect(level, "kernel settings", probes[0].attempt("rewrite", path=path))


@pytest.mark.parametrize(
    "name", ["use_own_folders", "use_shared_memory", "use_the_machine", "list_own_tree"]
)
def test_what_an_engine_needs(level: SandboxLevel, probes: Probes, name: str) -> None:
    if name == "list_own_tree":
        done, found = probes[0].attempt("list_folder", path=".")
        assert done and "server.py" in found
        return
    assert probes[0].attempt(name) == (True, None)


def test_torch_works(level: SandboxLevel, probes: Probes) -> None:
    assert probes[0].attempt("multiply") == (True, 8 * 16 * 4)


def test_compilers_work(level: SandboxLevel, probes: Probes) -> None:
    assert probes[0].attempt("compile_and_load") == (True, 7)
