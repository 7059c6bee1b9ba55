"""The steady part of a block of concurrent requests: all slots decoding, ramp and drain left out.

The ramp ends when as many requests as there are slots have had their first token; the drain begins
when a request ends and no other takes its slot. Prefills of requests that take over a slot lie
inside: at c > 1 they are part of what an engine's throughput is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from farm.bench.recording import Run


@dataclass(frozen=True)
class Window:
    """Output tokens of all requests that arrived in `seconds` of steady load."""

    tokens: int
    seconds: float


def steady_window(runs: Sequence[Run], slots: int) -> Window | None:
    """None where the block never filled its slots or drained before it had."""
    if len(runs) < slots:
        return None
    first = sorted(run.sent_s + run.wall_s[0] for run in runs)
    last = sorted(run.sent_s + run.wall_s[-1] for run in runs)
    start, end = first[slots - 1], last[len(runs) - slots]
    tokens = 0
    for run in runs:
        before = 0
        for at, count in zip(run.wall_s, run.tokens, strict=True):
            if start < run.sent_s + at <= end:
                tokens += count - before
            before = count
    return Window(tokens, end - start) if end > start and tokens else None
