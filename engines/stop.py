"""`python -m engines.stop PORT`: end exactly the served engine on record for a port."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Sequence

from engines.errors import EngineError
from engines.process_registry import ProcessRecord, ProcessRegistry, end_processes
from settings.errors import SpecfarmError
from settings.one_line_parser import OneLineParser, port_number


def stop_port(port: int, registry: ProcessRegistry | None = None, grace_s: float = 10.0) -> str:
    """End the engine that `scripts/serve.sh` started on `port`; says in words what was ended.

    Raises:
        EngineError: nothing on record there, or an engine of a running search.
    """
    registry = registry or ProcessRegistry()
    found = [r for r in registry.records() if r.port == port and r.members()]
    if not found:
        raise EngineError(
            f"no engine of ours is on record for port {port}", f"See: ss -ltnp sport = :{port}"
        )
    for record in found:
        if record.purpose != "serve" and record.owner_is_running():
            raise EngineError(
                f"port {port} belongs to a running search (pid {record.owner_pid})",
                "Stop the search instead",
            )
    for record in found:
        _end(record, registry, grace_s)
    return ", ".join(f"{r.setting} {r.arm} (pid {r.pid}) on port {port}" for r in found)


def _end(record: ProcessRecord, registry: ProcessRegistry, grace_s: float) -> None:
    """The serving script ends its engine itself; what is left after that is ended here."""
    if record.owner_is_running():
        with contextlib.suppress(ProcessLookupError):
            os.kill(record.owner_pid, signal.SIGTERM)
        deadline = time.monotonic() + grace_s
        while record.owner_is_running() and time.monotonic() < deadline:
            time.sleep(0.05)
    end_processes(record, grace_s)
    registry.forget(record)


def main(argv: Sequence[str] | None = None) -> int:
    parser = OneLineParser(prog="stop.sh", description="Stop a served engine.")
    parser.add_argument("port", type=port_number)
    try:
        print(f"stopped {stop_port(parser.parse_args(argv).port)}")
    except SpecfarmError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
