"""In-process benchmark: `python -m native_tools.bench --model-dir DIR`. No HTTP, no farm.

Prints one JSON object: AR and speculative ms per step and tokens per second over the same prompt
(interleaved repeats, the fastest of each), and milliseconds per component at 1 and k+1 rows.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import torch

from native_engine.config import EngineConfig, ModelConfig
from native_engine.decode import PhaseTimes
from native_engine.drafters.single import SingleDrafter
from native_engine.engine import DTYPES, Engine, load_engine
from native_engine.errors import NativeEngineError
from native_engine.requests import GenerateRequest
from native_engine.tokenizer import Tokenizer
from native_tools.component_times import component_times, draft_times

TREE = Path(__file__).resolve().parents[1]
TOKENS_MAX = 2048
PROMPT = "Write a Python function that counts the words of a text, and explain it line by line."


def measure(engine: Engine, request: GenerateRequest) -> dict[str, float]:
    """One request: ms per decode step, its parts, tokens a step, decode tokens per second."""
    engine.decoder.times = PhaseTimes()
    result = engine.run(request)
    t = engine.decoder.times
    decode = t.draft_s + t.forward_s + t.head_s + t.accept_s
    steps = max(1, t.steps)
    return {
        "ms_per_step": 1e3 * decode / steps,
        "forward_ms": 1e3 * t.forward_s / steps,
        "lm_head_ms": 1e3 * t.head_s / steps,
        "draft_ms": 1e3 * t.draft_s / steps,
        "accept_ms": 1e3 * t.accept_s / steps,
        "rows_per_step": t.rows / steps,
        "tokens_per_step": t.committed / steps,
        "decode_tokens_per_s": t.committed / decode if decode else 0.0,
        "prefill_ms": 1e3 * t.prefill_s,
        "output_tokens": float(len(result.output_ids)),
    }


def compare(engine: Engine, request: GenerateRequest, repeats: int) -> dict[str, Any]:
    """AR and speculation by turns on one model; the repeat with the fastest step of each."""
    drafter = engine.decoder.drafter
    arms = {"ar": None, "speculative": drafter}
    runs: dict[str, list[dict[str, float]]] = {name: [] for name in arms}
    for _ in range(repeats):
        for name, use in arms.items():
            engine.decoder.drafter = use
            runs[name].append(measure(engine, request))
    engine.decoder.drafter = drafter
    return {name: min(rows, key=lambda r: r["ms_per_step"]) for name, rows in runs.items()}


def main(argv: list[str] | None = None) -> int:
    """Exit 2 with one line for a bad folder or engine.toml."""
    parser = argparse.ArgumentParser(prog="native_tools.bench", description=__doc__)
    parser.add_argument("--model-dir", type=Path, required=True)
    parser.add_argument("--dtype", choices=tuple(DTYPES), default="bf16")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--tokens", type=int, default=96)
    parser.add_argument("--context", type=int, default=256, help="KV length of component times")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--prompt", default=PROMPT)
    parser.add_argument("--engine-config", type=Path, default=TREE / "engine.toml")
    parser.add_argument("--draft-model-dir", help="weights of a parallel drafter")
    args = parser.parse_args(argv)
    torch.set_num_threads(args.threads)
    try:
        knobs = EngineConfig.from_file(args.engine_config)
        tokens = min(TOKENS_MAX, ModelConfig.from_folder(args.model_dir).max_positions)
        engine = load_engine(
            args.model_dir, knobs, args.dtype, tokens, draft_model_dir=args.draft_model_dir
        )
        ids = Tokenizer(args.model_dir).chat([{"role": "user", "content": args.prompt}])
    except NativeEngineError as error:
        print(f"native_tools.bench: {error}", file=sys.stderr)
        return 2
    request = GenerateRequest("bench", tuple(ids), args.tokens)
    report: dict[str, Any] = {"dtype": args.dtype, "threads": args.threads}
    report.update(compare(engine, request, args.repeats))
    decoder = engine.decoder
    report["component_ms"] = {
        f"{rows}_rows": component_times(engine.model, decoder.cache, rows, args.context)
        for rows in (1, 1 + knobs.speculation.draft_tokens)
    }
    if isinstance(decoder.drafter, SingleDrafter):
        report["component_ms"]["draft"] = draft_times(decoder.drafter, args.context)
    print(json.dumps(report, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
