"""Whose request failed: an engine error leaves here with the label of the arm that was being asked.

Only that arm may be held to account: a candidate must not end as `crashed` because stock did.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from engines.errors import EngineError, EngineTimeout
from farm.bench.live_stream import LiveStream


@contextmanager
def blaming(label: str) -> Iterator[None]:
    """Puts `label` on an engine error that carries none yet."""
    try:
        yield
    except EngineError as error:
        error.arm = error.arm or label
        raise


def raise_first_failure(
    streams: Mapping[str, LiveStream], order: Sequence[str], asked: str | None = None
) -> None:
    """Raises the error of the stream that failed first, if any has.

    `asked` is the arm that alone was running meanwhile: where another arm, stopped for it, ran out
    of time, it is the running one that took it.
    """
    failed = [label for label in order if streams[label].failed]
    if not failed:
        return
    label = min(failed, key=lambda name: streams[name].failed_s or 0.0)
    error = streams[label].error
    if asked is not None and label != asked and isinstance(error, EngineTimeout):
        taken = EngineTimeout(f"{asked} took so long that {label}, stopped meanwhile, timed out")
        taken.arm = asked
        raise taken from error
    with blaming(label):
        streams[label].answer()
