"""A fake engine that really streams in a thread and really stands still while paused."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from engines.answer_parsing import CUT
from engines.answers import Answer, GenerationRequest
from engines.errors import EngineCrashed

TICK_S = 0.001


def request(name: str, tokens: int = 12) -> GenerationRequest:
    return GenerationRequest(name, tuple(name.encode()), tokens)


@dataclass
class Ledger:
    """What happened to all engines of a test, in order."""

    events: list[tuple[str, str]] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def note(self, label: str, what: str) -> None:
        with self.lock:
            self.events.append((label, what))


class FakeEngine:
    """Commits `per_step` tokens every `ticks` ticks of running time; ids are 100, 101, ..."""

    def __init__(
        self,
        label: str,
        ledger: Ledger | None = None,
        *,
        ticks: int = 2,
        per_step: int = 1,
        fail_at: int | None = None,
    ) -> None:
        self.arm = label
        self.tree_hash = f"{label}-hash"
        self.ledger = ledger or Ledger()
        self.ticks, self.per_step, self.fail_at = ticks, per_step, fail_at
        self.is_running = threading.Event()
        self.is_running.set()
        self.stopped = False

    def client(self) -> FakeEngine:
        return self

    def pause(self) -> None:
        self.is_running.clear()
        self.ledger.note(self.arm, "pause")

    def resume(self) -> None:
        self.ledger.note(self.arm, "resume")
        self.is_running.set()

    def stop(self) -> None:
        self.stopped = True
        self.ledger.note(self.arm, "stop")

    def flush_cache(self) -> None:
        assert self.is_running.is_set(), "a stopped engine cannot answer /flush_cache"
        self.ledger.note(self.arm, "flush")

    def stream(
        self,
        asked: GenerationRequest,
        on_event: Callable[..., object] | None = None,
        cut: int | None = None,
    ) -> Answer:
        self.ledger.note(self.arm, f"send {asked.id}")
        sent = time.monotonic()
        arrivals: list[tuple[float, int]] = []
        count = 0
        while count < asked.max_new_tokens:
            for _ in range(self.ticks):
                self.is_running.wait()
                time.sleep(TICK_S)
            self.is_running.wait()
            count = min(count + (self.per_step if arrivals else 1), asked.max_new_tokens)
            if self.fail_at is not None and count >= self.fail_at:
                raise EngineCrashed(f"{self.arm} fell over")
            arrivals.append((time.monotonic(), count))
            if on_event is not None:
                on_event(*arrivals[-1])
            if cut is not None and count >= cut:
                ids = tuple(range(100, 100 + count))
                return Answer(asked, ids, CUT, sent, tuple(arrivals))
        ids = tuple(range(100, 100 + count))
        return Answer(asked, ids, "length", sent, tuple(arrivals), len(arrivals) - 1)
