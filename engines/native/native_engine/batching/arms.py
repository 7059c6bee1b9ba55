"""Several ways to decode the same prompts, in turns, in one process: `python -m
native_engine.batching.arms --model-dir DIR --prompts F.jsonl --arm NAME[:key=value,...] ...`.

One request at a time on the batch path, each prompt by every arm before the next prompt. Prints one
JSON object: per arm decode tokens per second, accept length (the bonus included) and how many of
its answers equal the first arm's token for token; `--out` gets the answers in the form that
`specfarm verify` takes. Keys of an arm: `linear`, `drafter` (`off` without), `draft_dir`,
`draft_tokens`. A prompts line: `{"id": str, "prompt_ids": [int]}`."""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from native_engine.batching.batch_engine import (
    DTYPES,
    BatchEngine,
    BatchOptions,
    load_batch_engine,
)
from native_engine.batching.bench import batch_rate
from native_engine.bench import TREE
from native_engine.config import EngineConfig
from native_engine.errors import ConfigError, NativeEngineError
from native_engine.requests import GenerateRequest
from native_engine.tables import unknown_name

KEYS = ("linear", "drafter", "draft_dir", "draft_tokens")


@dataclass
class Arm:
    """One engine and what it did: tokens per second and target steps of each answer."""

    name: str
    engine: BatchEngine
    rates: list[float] = field(default_factory=list)
    answers: list[list[int]] = field(default_factory=list)
    steps: int = 0
    stepped: int = 0

    def warm_up(self, request: GenerateRequest) -> None:
        batch_rate(self.engine, request)

    def answer(self, request: GenerateRequest) -> None:
        times = self.engine.decoder.times
        steps, committed = times.steps, times.committed
        rate, ids = batch_rate(self.engine, request)
        self.rates.append(rate)
        self.answers.append(ids)
        self.steps += times.steps - steps
        self.stepped += times.committed - committed


def load_arm(text: str, model_dir: Path, dtype: str, device: str, max_total_tokens: int) -> Arm:
    """Raises ConfigError for an arm that cannot be read or loaded."""
    name, _, rest = text.partition(":")
    given = dict(part.split("=", 1) for part in rest.split(",") if "=" in part)
    for key in given:
        if key not in KEYS:
            raise unknown_name(f"--arm {name}", key, KEYS)
    knobs = EngineConfig.from_file(TREE / "engine.toml")
    speculation = knobs.speculation
    drafter = given.get("drafter", "off")
    if drafter != "off":
        speculation = replace(speculation, drafter=drafter)
    if "draft_tokens" in given:
        if not given["draft_tokens"].isdecimal():
            raise ConfigError(f"--arm {name}: draft_tokens={given['draft_tokens']!r}, not a number")
        speculation = replace(speculation, draft_tokens=int(given["draft_tokens"]))
    linear = given.get("linear", "plain")
    knobs = replace(
        knobs,
        speculation=speculation,
        linear=replace(knobs.linear, bf16=linear, fp32=linear if dtype == "fp32" else "plain"),
    )
    options = BatchOptions(
        model_dir=model_dir,
        dtype=dtype,
        device=device,
        load_format="safetensors",
        slots=1,
        max_total_tokens=max_total_tokens,
        speculation=drafter != "off",
        prefix_reuse=False,
        draft_model_dir=given.get("draft_dir"),
        root=TREE,
    )
    return Arm(name, load_batch_engine(options, knobs))


def report(arms: list[Arm]) -> dict[str, Any]:
    """Per arm; `accept_length` counts the tokens of target steps after the first token."""
    first = arms[0].answers
    return {
        arm.name: {
            "tokens_per_s": round(statistics.median(arm.rates), 2),
            "accept_length": round(arm.stepped / arm.steps, 4) if arm.steps else None,
            "answers": len(arm.answers),
            "tokens": sum(map(len, arm.answers)),
            "same_as_first_arm": sum(a == b for a, b in zip(arm.answers, first, strict=True)),
        }
        for arm in arms
    }


def write_answers(path: Path, arms: list[Arm], requests: list[GenerateRequest]) -> None:
    with path.open("w") as file:
        for arm in arms:
            for request, ids in zip(requests, arm.answers, strict=True):
                stopped = bool(ids) and ids[-1] in request.stops
                line = {
                    "id": f"{arm.name}/{request.id}",
                    "prompt_ids": list(request.prompt_ids),
                    "output_ids": ids,
                    "finish_reason": "stop" if stopped else "length",
                    "max_new_tokens": request.max_new_tokens,
                    "stop_token_ids": sorted(request.stops),
                }
                file.write(json.dumps(line) + "\n")


def main(argv: list[str] | None = None) -> int:
    """Exit 2 with one line for a bad folder, arm or prompt."""
    parser = argparse.ArgumentParser(prog="native_engine.batching.arms", description=__doc__)
    parser.add_argument("--model-dir", type=Path, required=True)
    parser.add_argument("--prompts", type=Path, required=True)
    parser.add_argument("--arm", action="append", required=True)
    parser.add_argument("--dtype", choices=tuple(DTYPES), default="bf16")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--tokens", type=int, default=96)
    parser.add_argument("--stop", type=int, action="append", default=[], help="stop token id")
    parser.add_argument("--max-total-tokens", type=int, default=2048)
    parser.add_argument("--limit", type=int, default=None, help="prompts at most")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args(argv)
    try:
        rows = [json.loads(line) for line in args.prompts.read_text().splitlines()][: args.limit]
        requests = [
            GenerateRequest(
                row["id"], tuple(row["prompt_ids"]), args.tokens, stops=frozenset(args.stop)
            )
            for row in rows
        ]
        if not requests:
            raise ConfigError(f"--prompts {args.prompts}: no prompt in it")
        arms = [
            load_arm(text, args.model_dir, args.dtype, args.device, args.max_total_tokens)
            for text in args.arm
        ]
        for arm in arms:
            arm.warm_up(requests[0])
        for request in requests:
            for arm in arms:
                arm.answer(request)
    except (NativeEngineError, OSError, KeyError, ValueError) as error:
        print(f"native_engine.batching.arms: {error!r}", file=sys.stderr)
        return 2
    if args.out is not None:
        write_answers(args.out, arms, requests)
    device = torch.cuda.get_device_name() if args.device == "cuda" else args.device
    print(json.dumps({"device": device, "dtype": args.dtype, "arms": report(arms)}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
