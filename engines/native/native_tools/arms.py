"""Several ways to decode the same prompts, in turns, in one process: `python -m
native_tools.arms --model-dir DIR --prompts F.jsonl --arm NAME[:key=value,...] ...`.

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
from native_engine.config import EngineConfig
from native_engine.errors import BadRequest, ConfigError, NativeEngineError
from native_engine.requests import GenerateRequest
from native_engine.tables import unknown_name
from native_tools.batch_bench import batch_rate
from native_tools.bench import TREE

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
    """Raises ConfigError naming the arm that cannot be read or loaded."""
    name, _, rest = text.partition(":")
    try:
        given = _keys(rest)
        knobs = EngineConfig.from_file(TREE / "engine.toml")
        speculation = knobs.speculation
        drafter = given.get("drafter", "off")
        if drafter != "off":
            speculation = replace(speculation, drafter=drafter)
        if "draft_tokens" in given:
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
    except NativeEngineError as error:
        raise ConfigError(f"--arm {name}: {error}") from error


def _keys(text: str) -> dict[str, str]:
    given: dict[str, str] = {}
    for part in text.split(",") if text else ():
        key, equals, value = part.partition("=")
        if key not in KEYS:
            raise unknown_name("key", key, KEYS)
        if not equals or (key == "draft_tokens" and not value.isdecimal()):
            raise ConfigError(f"{part!r}: {key}={'NUMBER' if key == 'draft_tokens' else 'VALUE'}")
        given[key] = value
    return given


def read_requests(
    path: Path, tokens: int, stops: frozenset[int], limit: int | None
) -> list[GenerateRequest]:
    """Raises ConfigError naming the file, and the line that is no prompt."""
    try:
        lines = path.read_text().splitlines()[:limit]
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--prompts {path}: {error}") from error
    requests = []
    for number, line in enumerate(lines, start=1):
        try:
            row = json.loads(line)
            identity, ids = row["id"], row["prompt_ids"]
            assert type(identity) is str and type(ids) is list and all(type(i) is int for i in ids)
        except (ValueError, KeyError, TypeError, AssertionError) as error:
            form = '{"id": str, "prompt_ids": [int]} is needed'
            raise ConfigError(f"--prompts {path}:{number}: {form}") from error
        requests.append(GenerateRequest(identity, tuple(ids), tokens, stops))
    if not requests:
        raise ConfigError(f"--prompts {path}: no prompt in it")
    return requests


def check(request: GenerateRequest, engine: BatchEngine) -> None:
    """Raises ConfigError naming a prompt that this model or `--max-total-tokens` cannot take."""
    vocab = engine.model_config.vocab_size
    try:
        engine.slots.check(request)
    except BadRequest as error:
        raise ConfigError(f"prompt {request.id!r}: {error}") from error
    if not all(0 <= token < vocab for token in request.prompt_ids):
        raise ConfigError(f"prompt {request.id!r}: token ids from 0 to {vocab - 1} are needed")


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
                    "ignore_eos": not request.stops,
                }
                file.write(json.dumps(line) + "\n")


def main(argv: list[str] | None = None) -> int:
    """Exit 2 with one line for a bad folder, arm or prompt."""
    parser = argparse.ArgumentParser(prog="native_tools.arms", description=__doc__)
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
        requests = read_requests(args.prompts, args.tokens, frozenset(args.stop), args.limit)
        arms = [
            load_arm(text, args.model_dir, args.dtype, args.device, args.max_total_tokens)
            for text in args.arm
        ]
        if len({arm.name for arm in arms}) < len(arms):
            raise ConfigError("--arm: each needs a name of its own")
        for request in requests:
            check(request, arms[0].engine)
        for arm in arms:
            arm.warm_up(requests[0])
        for request in requests:
            for arm in arms:
                arm.answer(request)
        if args.out is not None:
            write_answers(args.out, arms, requests)
    except (NativeEngineError, OSError) as error:
        print(f"native_tools.arms: {error}", file=sys.stderr)
        return 2
    device = torch.cuda.get_device_name() if args.device == "cuda" else args.device
    print(json.dumps({"device": device, "dtype": args.dtype, "arms": report(arms)}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
