"""Turns this process into the confined engine. Standard library only: it runs before the engine's
own environment does."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from typing import NoReturn

from engines.sandbox import kernel_settings, landlock, seccomp
from engines.sandbox.plan import SandboxPlan
from engines.sandbox.privileges import apply_limits, drop_privileges
from engines.sandbox.syscalls import prctl

_PDEATHSIG = 1
FIRST_PROCESS = 1


def become_engine(plan: SandboxPlan, keeper: int) -> NoReturn:
    """A session of its own, then every restriction, then exec. Never returns.

    Raises:
        SystemExit: a restriction could not be applied, or there is no such program: nothing runs.
    """
    os.setsid()
    os.close(plan.ready_fd)
    try:
        if plan.cpus:
            os.sched_setaffinity(0, plan.cpus)
        apply_limits()
        if plan.protect_settings:
            kernel_settings.protect()
        drop_privileges()
        # After the privileges, whose loss may clear it.
        prctl(_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != keeper:
            raise SystemExit("the engine's keeper is gone")
        if plan.landlock_abi:
            landlock.restrict(plan)
        _check_access(plan.required)
        if plan.seccomp:
            seccomp.install(plan, _spared(plan, keeper))
    except OSError as error:
        raise SystemExit(f"the sandbox cannot be set up: {error}") from None
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    try:
        os.execvpe(plan.command[0], plan.command, {**os.environ, **plan.variables})
    except OSError as error:
        raise SystemExit(f"cannot start {plan.command[0]}: {error}") from None


def _spared(plan: SandboxPlan, keeper: int) -> Sequence[int]:
    # In a process namespace the numbers are others', and neither can be seen.
    return () if keeper == FIRST_PROCESS else (keeper, plan.owner)


def _check_access(paths: Sequence[str]) -> None:
    """Root without capabilities may not read what belongs to others: better said now, by name."""
    for path in paths:
        try:
            os.close(os.open(path, os.O_RDONLY | os.O_CLOEXEC))
        except OSError as error:
            raise SystemExit(
                f"the sandbox cannot read {path}: {error.strerror}; make it readable for uid "
                f"{os.getuid()} without privileges"
            ) from None
