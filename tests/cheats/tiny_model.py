"""An engine tree loaded in this process on a tiny FP32 model, and what it answers: alone, in a
crowd, to long prompts, with stops."""

from __future__ import annotations

import random
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

PACKAGE = "native_engine"
CONTEXT = 1024
CLIENTS = 8
Answers = list[tuple[int, ...]]


@contextmanager
def engine_tree(tree: Path) -> Iterator[None]:
    """`native_engine` comes from `tree`; the one that was there before is back afterwards."""
    kept = {name: sys.modules.pop(name) for name in list(sys.modules) if _is_engine(name)}
    sys.path.insert(0, str(tree))
    try:
        yield
    finally:
        sys.path.remove(str(tree))
        for name in [name for name in sys.modules if _is_engine(name)]:
            del sys.modules[name]
        sys.modules.update(kept)


def _is_engine(name: str) -> bool:
    return name.split(".")[0] == PACKAGE


def answers(tree: Path, model: Path) -> Answers:
    """What the tree says to a fixed set of requests, in their order."""
    with engine_tree(tree):
        from native_engine.config import EngineConfig
        from native_engine.engine import load_engine
        from native_engine.requests import GenerateRequest
        from native_engine.scheduler import Scheduler
        from native_engine.tokenizer import Tokenizer

        tokenizer = Tokenizer(model)
        knobs = EngineConfig.from_file(tree / "engine.toml")
        engine = load_engine(model, knobs, "fp32", CONTEXT, True, tokenizer.decode)
        scheduler = Scheduler(engine, CLIENTS)
        rng = random.Random(0)

        def request(length: int, new: int, **stops: Any) -> GenerateRequest:
            prompt = tuple(rng.randrange(3, 259) for _ in range(length))
            return GenerateRequest("probe", prompt, new, **stops)

        try:
            plain = [request(40, 200) for _ in range(2)]
            found = [_run(scheduler, [one])[0] for one in plain]
            found += [_run(scheduler, [request(n, 48)])[0] for n in (600, 720, 720)]
            middle = found[0][len(found[0]) // 2]
            prompt = plain[0].prompt_ids
            text = tokenizer.decode(list(found[0][90:92]))
            for stops in ({"stops": frozenset({middle})}, {"stop_texts": (text,)}):
                found += _run(scheduler, [GenerateRequest("probe", prompt, 200, **stops)])
            # More tokens than a wrong one in a thousand needs.
            found += [_run(scheduler, [request(40, 200)])[0] for _ in range(3)]
            return found + _run(scheduler, [request(30, 32) for _ in range(CLIENTS)])
        finally:
            scheduler.close()


def _run(scheduler: Any, requests: list[Any]) -> Answers:
    """Submits all at once and waits."""
    from native_engine.scheduler import Job

    done = [threading.Event() for _ in requests]
    results: list[Any] = [None] * len(requests)

    def ended(place: int) -> Any:
        def keep(outcome: Any) -> None:
            results[place] = outcome
            done[place].set()

        return keep

    jobs = [Job(r, lambda tokens: None, ended(n)) for n, r in enumerate(requests)]
    scheduler.submit(jobs)
    assert all(event.wait(60) for event in done)
    return [tuple(getattr(result, "output_ids", ())) for result in results]
