"""Mixed load: `python -m farm.bench.soak URL --minutes M --concurrency C --out F.jsonl`.

Random lengths, streams, clients that hang up, bad requests, against an engine that is served
already. A line a minute: throughput, errors, the engine's memory and slots. Finished answers go to
`--out` in the format of `specfarm verify`, whose token forcing says whether any token is wrong.
Exit 0 when nothing failed, no bad request was accepted, no slot is left in use, memory grew less
than `--leak-mb` after the first minute, and throughput did not fall; else 1."""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TextIO

import psutil

from engines.answers import Answer
from engines.errors import EngineError
from engines.http_client import EngineClient
from farm.bench.soak_load import Counts, Load, Shape
from settings.errors import SpecfarmError
from settings.loading import load_setting
from settings.one_line_parser import OneLineParser
from settings.prompts import search_prompts
from settings.weights import ensure_target

_MIB = 2.0**20
# The medians of the last and the first quarter: a shared machine's drift is below this.
_FLAT = 0.75


@dataclass(frozen=True)
class Minute:
    """One line of the report. Memory in MiB; None where it is not known."""

    minute: float
    tokens_per_s: float
    requests: int
    failed: int
    rss_mb: float | None
    device_mb: float | None
    slots_used: int | None
    tokens_kept: int | None


def random_texts(vocabulary: int, length: int, seed: int, count: int = 64) -> list[list[int]]:
    """Prompts of random ids, where there is no text (random weights)."""
    draw = random.Random(seed)
    return [[draw.randrange(vocabulary) for _ in range(length)] for _ in range(count)]


def shape_of(args: argparse.Namespace, info: dict[str, Any]) -> Shape:
    """Prompts and stop rules of the setting, or random ids of the served model."""
    most = int(info["max_total_num_tokens"])
    if args.setting is None:
        texts = random_texts(info["model_config"]["vocab_size"], most // 2, args.seed)
        return Shape(texts, most, args.max_new, ignore_eos=True)
    setting = load_setting(args.setting)
    prompts = search_prompts(setting, ensure_target(setting))
    return Shape(
        [prompt.prompt_ids for prompt in prompts],
        most,
        min(args.max_new, setting.decoding.max_new_tokens),
        setting.decoding.stop_token_ids,
        setting.decoding.ignore_eos,
    )


def verify_line(answer: Answer) -> str:
    """One line of `specfarm verify --outputs`."""
    request = answer.request
    return json.dumps(
        {
            "id": request.id,
            "prompt_ids": list(request.prompt_ids),
            "output_ids": list(answer.output_ids),
            "finish_reason": answer.finish_reason,
            "max_new_tokens": request.max_new_tokens,
            "stop_token_ids": list(request.stop_token_ids),
            "ignore_eos": request.ignore_eos,
        }
    )


def look(client: EngineClient, pid: int | None) -> dict[str, float | None]:
    """The engine's memory and slots now."""
    slots = client.server_info().get("slots") or {}
    device = slots.get("device_bytes")
    return {
        "rss_mb": psutil.Process(pid).memory_info().rss / _MIB if pid is not None else None,
        "device_mb": device / _MIB if device is not None else None,
        "slots_used": slots.get("slots_used"),
        "tokens_kept": slots.get("tokens_kept"),
    }


def soak(
    client: EngineClient, shape: Shape, args: argparse.Namespace, kept: TextIO, report: TextIO
) -> tuple[list[Minute], Counts, dict[str, float | None]]:
    """Run the load; minutes, counts, and what was left a moment after the last answer."""
    draw = random.Random(args.seed)

    def keep(answer: Answer) -> None:
        if draw.random() < args.keep_share:
            kept.write(verify_line(answer) + "\n")

    load = Load(client, shape, args.concurrency, args.seed, keep)
    minutes: list[Minute] = []
    began = last = time.monotonic()
    tokens = requests = 0
    load.start()
    try:
        while last < began + 60 * args.minutes:
            time.sleep(max(0.0, min(60.0, began + 60 * args.minutes - time.monotonic())))
            now, counts = time.monotonic(), load.counts
            total = sum(counts.kinds.values())
            minutes.append(
                Minute(
                    minute=(now - began) / 60,
                    tokens_per_s=(counts.tokens - tokens) / (now - last),
                    requests=total - requests,
                    failed=counts.kinds["failed"],
                    **look(client, args.pid),  # type: ignore[arg-type]
                )
            )
            print(json.dumps(asdict(minutes[-1])), file=report, flush=True)
            last, tokens, requests = now, counts.tokens, total
    finally:
        load.stop()
    # The engine drops hung-up clients before its next step.
    time.sleep(1.0)
    return minutes, load.counts, look(client, args.pid)


def verdict(
    minutes: Sequence[Minute], counts: Counts, left: dict[str, float | None], leak_mb: float
) -> dict[str, Any]:
    """Totals, and `problems`: empty when all is well."""
    problems = [f"failed: {text}" for text in counts.errors]
    if counts.kinds["accepted_bad"]:
        problems.append(f"{counts.kinds['accepted_bad']} bad requests were accepted")
    if left["slots_used"]:
        problems.append(f"{left['slots_used']:g} slots are still in use")
    for name in ("rss_mb", "device_mb"):
        first, last = getattr(minutes[0], name), left[name]
        if first is not None and last is not None and last - first > leak_mb:
            problems.append(f"{name} grew from {first:.0f} to {last:.0f}")
    rates = [minute.tokens_per_s for minute in minutes]
    quarter = max(1, len(rates) // 4)
    first_rate, last_rate = statistics.median(rates[:quarter]), statistics.median(rates[-quarter:])
    kept_up = last_rate / max(1e-9, first_rate)
    if kept_up < _FLAT:
        problems.append(f"tokens/s fell from {first_rate:.0f} to {last_rate:.0f}")
    return {
        "kinds": dict(counts.kinds),
        "tokens": counts.tokens,
        "tokens_per_s": statistics.mean(rates),
        "last_over_first_quarter": kept_up,
        "left": left,
        "problems": problems,
    }


def main(argv: Sequence[str] | None = None) -> int:
    parser = OneLineParser(prog="farm.bench.soak", description=__doc__)
    parser.add_argument("url")
    parser.add_argument("--setting", help="its prompts and stop rules; default: random ids")
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--concurrency", type=int, default=32)
    parser.add_argument("--max-new", type=int, default=256, help="new tokens of a request at most")
    parser.add_argument("--out", type=Path, required=True, help="finished answers, JSON lines")
    parser.add_argument("--keep-share", type=float, default=1.0, help="share of answers kept")
    parser.add_argument("--pid", type=int, help="the engine's process, for its memory")
    parser.add_argument("--leak-mb", type=float, default=64.0)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args(argv)
    try:
        with EngineClient(args.url, 600.0) as client, args.out.open("w") as kept:
            shape = shape_of(args, client.server_info())
            minutes, counts, left = soak(client, shape, args, kept, sys.stdout)
    except (SpecfarmError, EngineError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    result = verdict(minutes, counts, left, args.leak_mb)
    print(json.dumps(result))
    return 1 if result["problems"] else 0


if __name__ == "__main__":
    sys.exit(main())
