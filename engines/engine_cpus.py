"""Which CPUs an engine keeps to while it is timed."""

from __future__ import annotations

import os


def engine_cpus(threads: int) -> tuple[int, ...] | None:
    """The machine's last cores for the engines (arms take turns there), the rest for the client;
    None where there are too few to part them."""
    available = sorted(os.sched_getaffinity(0))
    return tuple(available[-threads:]) if len(available) > threads else None
