"""`python -m native_engine.server`: load a folder and serve it."""

from __future__ import annotations

import argparse
import gc
import sys
from pathlib import Path

import torch
import uvicorn

from native_engine.config import EngineConfig
from native_engine.engine import DTYPES, load_engine
from native_engine.errors import ConfigError, NativeEngineError
from native_engine.scheduler import Scheduler
from native_engine.server.app import create_app
from native_engine.server.body import MAX_BODY_BYTES
from native_engine.server.state import LaunchFacts, ServerState
from native_engine.tokenizer import Tokenizer

TREE = Path(__file__).resolve().parents[2]
ARMS = ("stock", "ar", "final", "candidate")


def parse_args(argv: list[str] | None = None) -> argparse.Namespace:
    """The launch flags."""
    parser = argparse.ArgumentParser(
        prog="native_engine.server", description=__doc__, allow_abbrev=False
    )
    parser.add_argument("--model-dir", type=Path, required=True)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=30000)
    parser.add_argument("--arm", choices=ARMS, default="stock")
    parser.add_argument("--speculation", choices=("on", "off"), help="default: off for arm ar")
    parser.add_argument("--dtype", choices=tuple(DTYPES), default="bf16")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--max-total-tokens", type=int, default=2048)
    parser.add_argument("--max-running-requests", type=int, default=1)
    parser.add_argument("--max-queued-requests", type=int, default=128)
    parser.add_argument("--max-body-bytes", type=int, default=MAX_BODY_BYTES)
    parser.add_argument("--served-model-name")
    parser.add_argument("--tree-hash", default="unknown")
    parser.add_argument("--engine-config", type=Path, default=TREE / "engine.toml")
    args = parser.parse_args(argv)
    if args.max_running_requests != 1:
        parser.error("--max-running-requests: this engine runs 1 request at a time; others queue")
    if args.threads < 1:
        parser.error("--threads: at least 1")
    if args.max_body_bytes < 1:
        parser.error("--max-body-bytes: at least 1")
    return args


def build_state(args: argparse.Namespace) -> ServerState:
    """Load everything. Raises ConfigError or WeightsError."""
    knobs = EngineConfig.from_file(args.engine_config)
    speculation = args.speculation == "on" if args.speculation else args.arm != "ar"
    if args.arm == "ar" and speculation:
        raise ConfigError("--arm ar is stock without speculation; --speculation on contradicts it")
    facts = LaunchFacts(
        model_dir=str(args.model_dir),
        served_model_name=args.served_model_name or args.model_dir.name,
        arm=args.arm,
        tree_hash=args.tree_hash,
        dtype=args.dtype,
        threads=args.threads,
        speculation=speculation,
        max_total_tokens=args.max_total_tokens,
        max_running_requests=args.max_running_requests,
        max_queued_requests=args.max_queued_requests,
        max_body_bytes=args.max_body_bytes,
    )
    has_text = (args.model_dir / "tokenizer.json").exists()
    tokenizer = Tokenizer(args.model_dir) if has_text else None
    engine = load_engine(
        args.model_dir,
        knobs,
        args.dtype,
        args.max_total_tokens,
        speculation,
        tokenizer.decode if tokenizer else None,
    )
    return ServerState(facts, knobs, Scheduler(engine, args.max_queued_requests), tokenizer)


def main(argv: list[str] | None = None) -> int:
    """Exit 2 with one line for a bad flag, engine.toml or folder."""
    args = parse_args(argv)
    torch.set_num_threads(args.threads)
    try:
        state = build_state(args)
    except NativeEngineError as error:
        print(f"native_engine.server: {error}", file=sys.stderr)
        return 2
    # What is loaded stays: the collector need not walk it between steps.
    gc.collect()
    gc.freeze()
    try:
        uvicorn.run(create_app(state), host=args.host, port=args.port, log_level="warning")
    finally:
        state.scheduler.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
