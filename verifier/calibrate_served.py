"""A/A calibration by engines that somebody has started already, for `specfarm verify --stock`.

    python -m verifier.calibrate_served SETTING --outputs F.jsonl --ar URL --stock URL
        [--restarted URL] [--rows 8=URL] [--at-once 32] [--tokens 4000] --out CALIBRATION.json

The farm calibrates on engines that it starts itself. Outputs of another machine's GPU are forced
there, and judged by what stock's rounding is there: all engines named here are of that machine, of
the same tree and weights. `--outputs` are those to be judged later: their prompts are asked.
`--ar` is stock without speculation, which forces too; `--stock` the same with it, asked `--at-once`
requests at a time; `--restarted` another process of it; `--rows N=URL` an engine without
speculation that reads prompts N rows a pass.
"""

from __future__ import annotations

import argparse
import platform
import random
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

from engines.answers import Answer, GenerationRequest
from engines.http_client import EngineClient
from settings.errors import SpecfarmError
from settings.loading import load_setting
from settings.one_line_parser import OneLineParser
from settings.schema import Setting
from settings.weights import ensure_target
from verifier.calibration import Calibration
from verifier.calibration_file import save_calibration
from verifier.core import VerifierCore
from verifier.errors import CalibrationError
from verifier.forced import Forcer, Pair, Position
from verifier.outputs_file import parse_outputs
from verifier.served_stock import forcer_on, served_engine
from verifier.sweep import Shape, Sweeps
from verifier.target_rules import stop_rules
from verifier.words import thresholds_in_words

_RESTARTED_ANSWERS = 20


def main(argv: Sequence[str] | None = None) -> int:
    """Command line; returns 0, or 2 for a usage or environment error."""
    parser = OneLineParser(prog="verifier.calibrate_served", description=__doc__)
    parser.add_argument("setting")
    parser.add_argument("--outputs", type=Path, required=True, help="JSON lines, as for verify")
    parser.add_argument("--ar", required=True, help="URL of stock without speculation")
    parser.add_argument("--stock", required=True, help="URL of stock")
    parser.add_argument("--restarted", help="URL of another process of stock")
    parser.add_argument("--rows", action="append", default=[], metavar="N=URL")
    parser.add_argument("--at-once", type=int, default=1, help="requests in flight to --stock")
    parser.add_argument("--tokens", type=int, default=4000, help="new tokens of each arm")
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args(argv)
    try:
        setting = load_setting(args.setting)
        found = calibrate_served(setting, args)
        save_calibration(found, args.out)
        for line in thresholds_in_words(setting, found, {"specfarm verify": {}})["specfarm verify"]:
            print(line)
    except SpecfarmError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    print(f"written to {args.out}")
    return 0


def calibrate_served(setting: Setting, args: argparse.Namespace) -> Calibration:
    """Ask, force and sweep.

    Raises:
        ForcingError: a URL does not serve what its option says.
        CalibrationError: stock contradicts itself, or the answers are too few.
        EngineError: an engine failed.
    """
    model_dir = ensure_target(setting)
    requests = requests_of(
        parse_outputs(args.outputs, setting.decoding.max_new_tokens), args.tokens
    )
    with ExitStack() as stack:

        def served(option: str, url: str, arm: str) -> EngineClient:
            return stack.enter_context(served_engine(option, url, setting, arm))

        ar, stock = served("--ar", args.ar, "ar"), served("--stock", args.stock, "stock")
        force = forcer_on(ar)
        at_once = max(1, args.at_once)
        shapes = [Shape(f"{at_once} requests at once", "batched", _force_all(force, at_once))]
        for rows, url in map(_rows_of, args.rows):
            other = forcer_on(served("--rows", url, "ar"))
            shapes.append(Shape(f"{rows} rows a pass", "prompt chunks", _force_all(other, 1)))
        ar_answers = _ask(ar, requests, 1)
        stock_answers = _ask(stock, requests, at_once)
        restarted: list[Answer] = []
        if args.restarted is not None:
            again = served("--restarted", args.restarted, "stock")
            restarted = _ask(again, requests[:_RESTARTED_ANSWERS], at_once)
        core = VerifierCore(setting, lambda _: nullcontext(force), stop_rules(model_dir, setting))
        sweeps = Sweeps(shapes, ar.generate, restarted)
        return core.calibrate(ar_answers, stock_answers, _evidence(ar, args), sweeps)


def requests_of(outputs: Sequence[Answer], tokens: int) -> list[GenerationRequest]:
    """Requests of `outputs` with different prompts, drawn alike each time, that were answered with
    `tokens` tokens in all; every one where there are fewer."""
    order = random.Random("calibration").sample(range(len(outputs)), len(outputs))
    found: dict[tuple[int, ...], GenerationRequest] = {}
    had = 0
    for place in order:
        answer = outputs[place]
        if had >= tokens:
            break
        if answer.request.prompt_ids not in found:
            found[answer.request.prompt_ids] = answer.request
            had += len(answer.output_ids)
    return list(found.values())


def _rows_of(option: str) -> tuple[int, str]:
    rows, _, url = option.partition("=")
    if not rows.isdigit() or not url:
        raise CalibrationError(f"--rows {option}", "write --rows 8=http://127.0.0.1:8003")
    return int(rows), url


def _ask(client: EngineClient, requests: Sequence[GenerationRequest], at_once: int) -> list[Answer]:
    with ThreadPoolExecutor(at_once) as pool:
        return list(pool.map(client.generate, requests))


def _force_all(force: Forcer, at_once: int) -> Callable[[Sequence[Pair]], list[Sequence[Position]]]:
    return partial(_force_pairs, force, at_once)


def _force_pairs(force: Forcer, at_once: int, pairs: Sequence[Pair]) -> list[Sequence[Position]]:
    with ThreadPoolExecutor(at_once) as pool:
        return list(pool.map(lambda pair: force(*pair), pairs))


def _evidence(ar: EngineClient, args: argparse.Namespace) -> dict[str, Any]:
    return {
        "unit": "verifier.calibrate_served",
        "stock_tree": ar.server_info().get("tree_hash"),
        "machine": platform.node(),
        "utc": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "at_once": args.at_once,
    }


if __name__ == "__main__":
    raise SystemExit(main())
