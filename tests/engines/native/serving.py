"""A native server on a free port of this process, over a tiny random model."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import uvicorn

from native_engine.batching.batch_engine import BatchOptions, load_batch_engine
from native_engine.batching.batch_scheduler import BatchScheduler
from native_engine.config import EngineConfig
from native_engine.engine import load_engine
from native_engine.scheduler import Scheduler
from native_engine.server.app import create_app
from native_engine.server.fields import MAX_BODY_BYTES
from native_engine.server.state import LaunchFacts, ServerState
from native_engine.tokenizer import Tokenizer


@contextmanager
def serve(
    folder: Path,
    *,
    speculation: bool = True,
    max_queued: int = 8,
    tokens: int = 256,
    max_body_bytes: int = MAX_BODY_BYTES,
    slots: int = 1,
    prefix_reuse: bool = False,
    knobs: EngineConfig | None = None,
    drafter: Path | None = None,
) -> Iterator[tuple[str, ServerState]]:
    """Base URL and state; the server is stopped at the end. More than one slot: the batch path."""
    tokenizer = Tokenizer(folder)
    knobs = knobs or EngineConfig()
    scheduler: Scheduler | BatchScheduler
    if slots == 1:
        where = None if drafter is None else str(drafter)
        engine = load_engine(folder, knobs, "fp32", tokens, speculation, tokenizer.decode, where)
        scheduler = Scheduler(engine, max_queued)
    else:
        options = BatchOptions(
            model_dir=folder,
            dtype="fp32",
            device="cpu",
            load_format="safetensors",
            slots=slots,
            max_total_tokens=tokens,
            speculation=speculation,
            prefix_reuse=prefix_reuse,
            draft_model_dir=None if drafter is None else str(drafter),
            root=folder,
        )
        batch = load_batch_engine(options, knobs, tokenizer.decode)
        scheduler = BatchScheduler(batch, max_queued)
    facts = LaunchFacts(
        model_dir=str(folder),
        served_model_name="tiny",
        arm="stock",
        tree_hash="f" * 40,
        dtype="fp32",
        threads=1,
        speculation=speculation,
        max_total_tokens=tokens,
        max_running_requests=slots,
        max_queued_requests=max_queued,
        max_body_bytes=max_body_bytes,
    )
    state = ServerState(facts, knobs, scheduler, tokenizer)
    server = uvicorn.Server(
        uvicorn.Config(create_app(state), host="127.0.0.1", port=0, log_level="error")
    )
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        while not server.started:
            assert thread.is_alive(), "the server did not start"
            time.sleep(0.01)
        port = server.servers[0].sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{port}", state
    finally:
        server.should_exit = True
        thread.join(timeout=20)
        state.scheduler.close()
