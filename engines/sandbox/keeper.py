"""The process between the farm and an engine: whatever the engine leaves behind becomes its child
(PR_SET_CHILD_SUBREAPER, or process 1 of a namespace), so that nothing can get away by leaving its
session or clearing its environment.

It reaps strays, leaves the engine's own process unreaped (its number, and so its session, stay
ours), and ends everything when it is told to or when the farm dies.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time

from engines.proc_files import children_of
from engines.sandbox.plan import SandboxPlan
from engines.sandbox.syscalls import prctl

_PDEATHSIG, _DUMPABLE, _CHILD_SUBREAPER = 1, 4, 36
_ENDS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def become_keeper(plan: SandboxPlan) -> None:
    """To be called before the engine's process is forked.

    Raises:
        SystemExit: the farm is gone already.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGCHLD, *_ENDS))
    prctl(_CHILD_SUBREAPER, 1)
    # Its memory and environment are nobody's business, not even the same user's.
    prctl(_DUMPABLE, 0)
    if os.getpid() == 1:
        return  # of a namespace: it ends with bubblewrap, which ends with the farm
    prctl(_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != plan.owner:
        raise SystemExit("the farm is gone")


def keep(engine: int) -> None:
    """Wait until told to end; then end every descendant and return when none is left."""
    while signal.sigwait((signal.SIGCHLD, *_ENDS)) == signal.SIGCHLD:
        for child in children_of(os.getpid()):
            if child != engine:
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(child, os.WNOHANG)
    _end_all()


def _end_all() -> None:
    before: list[int] = []
    while True:
        # What loses its parent becomes a child of ours, so killing children reaches all in the end.
        children = children_of(os.getpid())
        for child in children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        # No pause while there is someone new: a chain of short-lived forks would slip through.
        if children == before:
            time.sleep(0.001)
        before = children
