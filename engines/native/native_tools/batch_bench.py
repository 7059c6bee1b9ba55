"""The batch path at one request against the single path: `python -m native_tools.batch_bench`.

Both are loaded in this process and answer the same prompt by turns. Prints one JSON object: decode
tokens per second of each (from the first token to the last), and the ratio batch / single of each
pair, median first; without speculation and with it. Above 1: the batch path is faster."""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from pathlib import Path
from time import perf_counter
from typing import Any

import torch

from native_engine.batching.batch_engine import BatchEngine, BatchOptions, load_batch_engine
from native_engine.batching.sequence import Running
from native_engine.config import EngineConfig
from native_engine.engine import DTYPES, Engine, load_engine
from native_engine.errors import NativeEngineError
from native_engine.requests import GenerateRequest
from native_engine.tokenizer import Tokenizer
from native_tools.bench import PROMPT, TREE

TOKENS_MAX = 2048


class Clock:
    """Counts what an engine emits; the last step's tokens come with the result."""

    def __init__(self) -> None:
        self.first: float | None = None
        self.first_tokens = 0

    def emit(self, tokens: list[int]) -> None:
        if self.first is None:
            self.first, self.first_tokens = perf_counter(), len(tokens)

    def rate(self, output_tokens: int) -> float:
        assert self.first is not None
        return (output_tokens - self.first_tokens) / (perf_counter() - self.first)


def single_rate(engine: Engine, request: GenerateRequest) -> tuple[float, list[int]]:
    """Decode tokens per second, and the answer."""
    clock = Clock()
    ids = engine.run(request, clock.emit).output_ids
    return clock.rate(len(ids)), ids


@torch.inference_mode()
def batch_rate(engine: BatchEngine, request: GenerateRequest) -> tuple[float, list[int]]:
    """As `single_rate`."""
    clock = Clock()
    slot, held = engine.slots.take(request)
    engine.decoder.begin(slot, held)
    running = Running(request, slot, held, clock.emit, engine.decoder.target.device)
    while not running.done:
        engine.decoder.step([running])
    engine.slots.give_back(slot, ())
    if running.error is not None:
        raise running.error
    ids = running.result.output_ids
    return clock.rate(len(ids)), ids


def compare(
    single: Engine, batch: BatchEngine, request: GenerateRequest, repeats: int
) -> dict[str, Any]:
    """Pairs in alternating order, after one of each to warm up."""
    pairs = []
    for turn in range(repeats + 1):
        if turn % 2:
            one, many = single_rate(single, request), batch_rate(batch, request)
        else:
            many, one = batch_rate(batch, request), single_rate(single, request)
        pairs.append((one[0], many[0]))
    ratios = [many / one for one, many in pairs[1:]]
    return {
        "ratio": statistics.median(ratios),
        "ratios": ratios,
        "single_tokens_per_s": statistics.median(one for one, _ in pairs[1:]),
        "batch_tokens_per_s": statistics.median(many for _, many in pairs[1:]),
        "same_answer": one[1] == many[1],
        "output_tokens": len(one[1]),
    }


def main(argv: list[str] | None = None) -> int:
    """Exit 2 with one line for a bad folder or engine.toml."""
    parser = argparse.ArgumentParser(prog="native_tools.batch_bench", description=__doc__)
    parser.add_argument("--model-dir", type=Path, required=True)
    parser.add_argument("--dtype", choices=tuple(DTYPES), default="bf16")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--tokens", type=int, default=96)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--prompt", default=PROMPT)
    parser.add_argument("--engine-config", type=Path, default=TREE / "engine.toml")
    parser.add_argument("--draft-model-dir", help="weights of a parallel drafter")
    args = parser.parse_args(argv)
    torch.set_num_threads(args.threads)
    report: dict[str, Any] = {"dtype": args.dtype, "threads": args.threads}
    try:
        knobs = EngineConfig.from_file(args.engine_config)
        ids = Tokenizer(args.model_dir).chat([{"role": "user", "content": args.prompt}])
        request = GenerateRequest("bench", tuple(ids), args.tokens)
        for name, speculation in (("ar", False), ("speculative", True)):
            where = args.draft_model_dir
            single = load_engine(
                args.model_dir, knobs, args.dtype, TOKENS_MAX, speculation, draft_model_dir=where
            )
            options = BatchOptions(
                model_dir=args.model_dir,
                dtype=args.dtype,
                device="cpu",
                load_format="safetensors",
                slots=1,
                max_total_tokens=TOKENS_MAX,
                speculation=speculation,
                prefix_reuse=False,
                draft_model_dir=where,
                root=args.engine_config.parent,
            )
            batch = load_batch_engine(options, knobs)
            report[name] = compare(single, batch, request, args.repeats)
    except NativeEngineError as error:
        print(f"native_tools.batch_bench: {error}", file=sys.stderr)
        return 2
    print(json.dumps(report, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
