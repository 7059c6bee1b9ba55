"""`python -m native_engine.server`: load a folder and serve it."""

from __future__ import annotations

import argparse
import gc
import sys
from dataclasses import fields
from pathlib import Path

import torch
import uvicorn

from native_engine.batching.batch_engine import DTYPES, REPLAY, BatchOptions, load_batch_engine
from native_engine.batching.batch_scheduler import BatchScheduler
from native_engine.config import EngineConfig, ServedModel
from native_engine.drafters.options import PARALLEL_DRAFTERS
from native_engine.engine import load_engine
from native_engine.errors import ConfigError, NativeEngineError
from native_engine.scheduler import Scheduler
from native_engine.server.app import create_app
from native_engine.server.fields import MAX_BODY_BYTES
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
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--load-format", choices=("safetensors", "dummy"), default="safetensors")
    parser.add_argument("--draft-model-dir", help="drafter checkpoint; with dummy also a name")
    parser.add_argument("--prefix-reuse", choices=("on", "off"), default="off")
    parser.add_argument("--max-queued-requests", type=int, default=128)
    parser.add_argument("--max-body-bytes", type=int, default=MAX_BODY_BYTES)
    parser.add_argument("--served-model-name")
    parser.add_argument("--tree-hash", default="unknown")
    parser.add_argument("--engine-config", type=Path, default=TREE / "engine.toml")
    args = parser.parse_args(argv)
    least = {"max_running_requests": 1, "max_queued_requests": 0, "threads": 1, "max_body_bytes": 1}
    for flag, low in least.items():
        if getattr(args, flag) < low:
            parser.error(f"--{flag.replace('_', '-')}: at least {low}")
    return args


def batched(args: argparse.Namespace, knobs: EngineConfig) -> bool:
    """Whether the batch path serves: one Llama request at a time on CPU has a path of its own."""
    return (
        args.max_running_requests > 1
        or args.device != "cpu"
        or args.dtype == "fp8"
        or args.load_format != "safetensors"
        or args.prefix_reuse == "on"
        or knobs.speculation.drafter == REPLAY
        or ServedModel.from_folder(args.model_dir).model_type != "llama"
    )


def build_state(args: argparse.Namespace) -> ServerState:
    """Load everything. Raises ConfigError or WeightsError."""
    knobs = EngineConfig.from_file(args.engine_config)
    speculation = args.speculation == "on" if args.speculation else args.arm != "ar"
    if args.arm == "ar" and speculation:
        raise ConfigError("--arm ar is stock without speculation; --speculation on contradicts it")
    flags = vars(args) | {
        "served_model_name": args.served_model_name or args.model_dir.name,
        "speculation": speculation,
        "prefix_reuse": args.prefix_reuse == "on",
        "slots": args.max_running_requests,
        "root": args.engine_config.parent,
    }
    shown = flags | {"model_dir": str(args.model_dir)}
    facts = LaunchFacts(**{f.name: shown[f.name] for f in fields(LaunchFacts)})
    where, name = args.draft_model_dir, knobs.speculation.drafter
    if where and name not in (*PARALLEL_DRAFTERS, REPLAY):
        note = f"--draft-model-dir is not read: engine.toml [speculation] drafter = {name!r}"
        print(f"native_engine.server: {note}", file=sys.stderr)
    has_text = (args.model_dir / "tokenizer.json").exists()
    tokenizer = Tokenizer(args.model_dir) if has_text else None
    decode = tokenizer.decode if tokenizer else None
    scheduler: Scheduler | BatchScheduler
    if batched(args, knobs):
        options = BatchOptions(**{f.name: flags[f.name] for f in fields(BatchOptions)})
        batch = load_batch_engine(options, knobs, decode)
        scheduler = BatchScheduler(batch, args.max_queued_requests)
    else:
        tokens = args.max_total_tokens
        engine = load_engine(args.model_dir, knobs, args.dtype, tokens, speculation, decode, where)
        scheduler = Scheduler(engine, args.max_queued_requests)
    return ServerState(facts, knobs, scheduler, tokenizer)


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
