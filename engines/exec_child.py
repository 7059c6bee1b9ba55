"""Becomes an engine: dies with its parent, keeps to its CPUs, then execs the command.

Run as a script, `exec_child.py PARENT_PID CPUS -- COMMAND...` (CPUS: `0,2` or `-`), and not as a
`preexec_fn`, which is unsafe in a process with threads. PR_SET_PDEATHSIG survives exec.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main() -> None:
    parent, cpus, separator, *command = sys.argv[1:]
    if separator != "--" or not command:
        raise SystemExit("usage: exec_child.py PARENT_PID CPUS -- COMMAND...")
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != int(parent):
        raise SystemExit("the parent is gone")
    if cpus != "-":
        os.sched_setaffinity(0, {int(cpu) for cpu in cpus.split(",")})
    try:
        os.execvp(command[0], command)
    except OSError as error:
        raise SystemExit(f"cannot start {command[0]}: {error}") from None


if __name__ == "__main__":
    main()
