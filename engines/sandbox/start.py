"""Starts an engine's keeper, and through it the engine, inside the level in force."""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from engines.errors import EngineCrashed
from engines.proc_files import children_of, proc_stat
from engines.sandbox.allow_list import AllowList
from engines.sandbox.bubblewrap import keeper_command, wrapped_keeper_command
from engines.sandbox.level import SandboxLevel
from engines.sandbox.plan import SandboxPlan
from engines.spawner import spawn

_READY_TIMEOUT_S = 60.0


@dataclass(frozen=True)
class Confined:
    """Attributes: `popen`, our child; `keeper`, the ancestor of all the engine's processes (our
    child itself, or below it); `engine`, leader of the engine's own session and group."""

    popen: subprocess.Popen[bytes]
    keeper: int
    engine: int


def start_confined(
    level: SandboxLevel,
    allowed: AllowList,
    command: tuple[str, ...],
    *,
    tree: Path,
    model_dir: Path,
    environment: Mapping[str, str],
    variables: Mapping[str, str],
    port: int,
    internal_ports: tuple[int, ...],
    cpus: tuple[int, ...],
    output: IO[bytes],
) -> Confined:
    """Returns when the engine's process exists (it may still fail to become the engine).

    Args:
        tree: its working directory.  environment: of the keeper and the engine.
        variables: of the engine alone.  output: its stdout and stderr.

    Raises:
        EngineCrashed: the keeper ended or did not get that far in a minute.
        OSError: no process could be made.
    """
    ready, ready_in_child = os.pipe()
    try:
        plan = SandboxPlan(
            command=command,
            variables=dict(variables),
            owner=os.getpid(),
            ready_fd=ready_in_child,
            cpus=cpus,
            required=(str(tree.resolve()), *_files(model_dir)),
            readable=allowed.readable,
            listable=allowed.listable,
            writable=allowed.writable,
            devices=_devices(level, allowed),
            port=port,
            internal_ports=internal_ports,
            landlock_abi=level.landlock_abi,
            seccomp=level.seccomp,
            protect_settings=level.settings and not level.bubblewrap,
        )
        argv = keeper_command()
        if level.bubblewrap:
            argv = wrapped_keeper_command(level.bubblewrap, allowed, tree)
        popen = spawn(
            lambda: subprocess.Popen(
                argv,
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=tree,
                env=dict(environment),
                start_new_session=True,
                pass_fds=(ready_in_child,),
            )
        )
        os.close(ready_in_child)
        ready_in_child = -1
        assert popen.stdin is not None
        with contextlib.suppress(BrokenPipeError), popen.stdin as pipe:
            pipe.write(plan.to_json().encode())
        if not select.select([ready], [], [], _READY_TIMEOUT_S)[0] or not os.read(ready, 1):
            popen.kill()
            popen.wait()
            raise EngineCrashed(f"the sandbox {level.name} did not start the engine")
    finally:
        os.close(ready)
        if ready_in_child >= 0:
            os.close(ready_in_child)
    keeper = _first_child(popen.pid) if level.bubblewrap else popen.pid
    return Confined(popen, keeper, _first_child(keeper))


def _devices(level: SandboxLevel, allowed: AllowList) -> tuple[str, ...]:
    # CUDA writes below its own /proc/PID when it starts, and the numbers of the processes to come
    # are not known. Everything else there that matters is a kernel setting.
    return (*allowed.devices, "/proc") if allowed.gpus and level.settings else allowed.devices


def _files(model_dir: Path) -> tuple[str, ...]:
    return tuple(str(path.resolve()) for path in model_dir.glob("*") if path.is_file())


def _first_child(pid: int) -> int:
    """The child that was there first; 0 where none is left."""
    found = [stat for child in children_of(pid) if (stat := proc_stat(child)) is not None]
    return min(found, key=lambda stat: (stat.start_time, stat.pid)).pid if found else 0
