"""Becomes an engine's keeper, and its child the engine: `python -I -S exec_child.py < PLAN`.

Not a `preexec_fn`, which is unsafe in a process with threads. The plan (`SandboxPlan` as JSON) is
read from standard input, which the engine then has as /dev/null.
"""

import os
import sys
from pathlib import Path

if __name__ == "__main__":
    # -I leaves the script's own package out.
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from engines.sandbox.confine import become_engine
from engines.sandbox.keeper import become_keeper, keep
from engines.sandbox.plan import SandboxPlan


def main() -> None:
    plan = SandboxPlan.from_json(sys.stdin.read())
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    become_keeper(plan)
    keeper = os.getpid()
    engine = os.fork()
    if engine == 0:
        become_engine(plan, keeper)
    os.write(plan.ready_fd, b"1")
    os.close(plan.ready_fd)
    keep(engine)


if __name__ == "__main__":
    main()
