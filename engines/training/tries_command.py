"""`tries`: many short trainings one after the other, one JSON line each.

The plan is TOML: `[defaults]` and `[[try]]` tables of training options; each try has a `name`."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
import tomllib
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from engines.training.errors import TrainingError
from engines.training.options import TrainOptions, read_options

RESULTS = "tries.jsonl"


@dataclass(frozen=True)
class Try:
    name: str
    options: TrainOptions
    changed: dict[str, Any]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--plan", type=Path, required=True)
    parser.add_argument("--target", type=Path, required=True)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--evaluation", type=Path, required=True)
    parser.add_argument("--rows", type=int, default=20, help="evaluation prompts of each family")
    parser.add_argument("--out", type=Path, required=True, help="a folder a try, and tries.jsonl")
    parser.add_argument("--gpu", default="0", help="the device number; cpu: none")
    parser.add_argument("--part", default="0/1", help="i/n: every n-th try from the i-th")
    parser.add_argument("--grace-s", type=float, default=150, help="beside a try's own minutes")
    parser.add_argument("--limit-seconds", type=float, default=0, help="start none that may exceed")
    parser.add_argument("--keep-weights", action="store_true")


def run(args: argparse.Namespace) -> int:
    began = time.monotonic()
    results = args.out / RESULTS
    args.out.mkdir(parents=True, exist_ok=True)
    done = {json.loads(line)["name"] for line in _lines(results)}
    part, parts = _part(args.part)
    for tried in read_plan(args.plan)[part::parts]:
        if tried.name in done:
            continue
        limit = tried.options.minutes * 60 + args.grace_s
        if args.limit_seconds and time.monotonic() - began + limit > args.limit_seconds:
            print(f"{tried.name}: not started, {limit:.0f} s do not fit", flush=True)
            continue
        line = _run_one(args, tried, limit)
        with results.open("a") as file:
            file.write(json.dumps(line) + "\n")
        print(json.dumps(line), flush=True)
    return 0


def read_plan(path: Path) -> list[Try]:
    """TrainingError names the try and the key that is wrong."""
    try:
        plan = tomllib.loads(path.read_text())
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise TrainingError(f"--plan {path}: {error}", "A TOML file is needed") from None
    defaults, tables = plan.get("defaults", {}), plan.get("try", [])
    tries = []
    for number, table in enumerate(tables):
        changed = dict(table)
        name = str(changed.pop("name", f"try-{number}"))
        tries.append(Try(name, read_options({**defaults, **changed}, f"{path} {name}"), changed))
    names = [tried.name for tried in tries]
    if not names or len(set(names)) < len(names):
        raise TrainingError(f"--plan {path}: no try, or two of one name", "Name each differently")
    return tries


def _run_one(args: argparse.Namespace, tried: Try, limit: float) -> dict[str, Any]:
    folder, began = args.out / tried.name, time.monotonic()
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "engines.training", "train", *_flags(tried.options)]
    command += ["--target", str(args.target), "--data", str(args.data), "--out", str(folder)]
    command += ["--evaluation", str(args.evaluation), "--rows", str(args.rows)]
    command += ["--log", str(folder / "log.jsonl")]
    if args.gpu == "cpu":
        command += ["--device", "cpu"]
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "" if args.gpu == "cpu" else args.gpu}
    line: dict[str, Any] = {"name": tried.name, "changed": tried.changed}
    with (folder / "output.txt").open("w") as output:
        try:
            code = subprocess.run(
                command, env=environment, stdout=output, stderr=output, timeout=limit, check=False
            ).returncode
        except subprocess.TimeoutExpired:
            code = -1
    line["seconds"] = round(time.monotonic() - began, 1)
    record = folder / "training.json"
    if code or not record.exists():
        tail = (folder / "output.txt").read_text().splitlines()[-3:]
        return {**line, "failed": "over its time" if code == -1 else " | ".join(tail)}
    found = json.loads(record.read_text())
    if not args.keep_weights:
        (folder / "model.safetensors").unlink(missing_ok=True)
    return {
        **line,
        "kind": tried.options.kind,
        "parameters": found["parameters"],
        "steps": found["steps"],
        "training_s": found["training_s"],
        "end": {k: found["at_the_end"][k] for k in ("loss", "ce", "hits", "ms_per_step")},
        "accept_length": {
            row["family"]: [row["drafter"][k] for k in ("mean", "low", "high")]
            for row in found["accept_length"]
        },
        "ngram": {row["family"]: row["ngram"]["mean"] for row in found["accept_length"]},
    }


def _flags(options: TrainOptions) -> list[str]:
    flags = []
    for known in fields(TrainOptions):
        flag, value = known.name.replace("_", "-"), getattr(options, known.name)
        if isinstance(value, bool):
            flags.append(f"--{flag}" if value else f"--no-{flag}")
        else:
            flags.append(f"--{flag}={value}")
    return flags


def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def _part(text: str) -> tuple[int, int]:
    part, _, parts = text.partition("/")
    if not (part.isdigit() and parts.isdigit() and int(part) < int(parts)):
        raise TrainingError(f"--part {text}", "i/n with i below n")
    return int(part), int(parts)
