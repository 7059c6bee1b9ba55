"""How far stock's BF16 lies from FP32 and from itself on random ids:
`python -m farm.bench.row_noise SETTING [--no-start]`.

Stock is asked for its logits after every token of random texts: in one pass, some rows a pass (a
verify step's kernels) and in FP32, on the setting's twin. Each way is then taken for an honest
engine: where its best token lies further below the pass's than the allowed gap (`--allowed`: what
calibrations of the embedded default found), the verifier would have to look again. `--no-start`
leaves out the token that every prompt of the setting begins with. Results: docs/losslessness.md.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from engines.protocol import RowShapes
from engines.registry import engine_driver
from engines.resolve import import_stock, store_for
from farm.bench.errors import MeasurementError
from farm.workers.row_shapes import ROW_SHAPES
from farm.workers.stock_pool import StockPool
from settings.errors import SpecfarmError
from settings.loading import find_setting, load_setting
from settings.one_line_parser import OneLineParser
from settings.prompts import heldout_prompts, tokenizer_of
from settings.schema import Setting
from settings.verifier_prompts import common_start, plain_ids
from settings.weights import ensure_target
from verifier.forced import Pair, Position
from verifier.margins import gap
from verifier.second_look import MOVED

_PROMPT = 16
_SHOWN = 6
# Below it gaps are in its ULPs, as a verifier's below its calibration's usual best value.
_LEAST_MAGNITUDE = 16.0
_ONE_PASS = "one pass"


@dataclass(frozen=True)
class Noise:
    """One way against the pass: positions, BF16 ULPs by which the best value moved at the furthest
    of them, at how many by more than the second look's limit, and at how many the way's choice lies
    further than `allowed` below the pass's (at least: the pass names its first few only)."""

    way: str
    positions: int
    furthest: tuple[float, ...]
    over_limit: int
    wrong: int


def row_noise(
    setting_name: str, texts: int, tokens: int, allowed: float, start: bool = True
) -> tuple[Noise, ...]:
    """Forces `texts` random texts of `tokens` tokens along every way.

    Raises:
        MeasurementError: the setting has no FP32 twin or too short a context.
        EngineError: stock does not start or serve.
    """
    setting = load_setting(setting_name)
    pairs = _random_texts(setting, texts, tokens, start)
    driver, store = engine_driver(setting.engine.name), store_for(setting)
    if setting.exact_twin is None or not isinstance(driver, RowShapes):
        raise MeasurementError(
            f"{setting.name} has no exact_twin or an engine without row shapes",
            "Choose a BF16 setting of the native engine.",
        )
    commit = import_stock(setting, store).commit
    ways = {_ONE_PASS: (setting_name, commit)}
    for rows in ROW_SHAPES:
        shaped = store.commit_knobs(commit, driver.row_shape_knobs(rows)).commit
        ways[f"{rows} rows a pass"] = (setting_name, shaped)
    beside = find_setting(setting_name).parent.parent
    ways["FP32, one pass"] = (str(beside / setting.exact_twin), commit)
    found: dict[str, list[Position]] = {}
    for way, (name, tree) in ways.items():
        pool = StockPool(store)
        try:
            forced = pool.force_many(name, tree, pairs)
        finally:
            pool.release()
        found[way] = [position for positions in forced for position in positions[:-1]]
    return _compared(found, allowed)


def _random_texts(setting: Setting, texts: int, tokens: int, start: bool) -> list[Pair]:
    if _PROMPT + tokens > setting.serving.max_total_tokens:
        raise MeasurementError(
            f"{_PROMPT} + {tokens} tokens are more than serving.max_total_tokens = "
            f"{setting.serving.max_total_tokens} of {setting.name}",
            "Give fewer --tokens.",
        )
    folder, rng = ensure_target(setting), random.Random("row noise")
    plain = plain_ids(tokenizer_of(folder))
    first = common_start(heldout_prompts(setting, folder, "row noise")) if start else ()
    return [
        ((*first, *rng.choices(plain, k=_PROMPT - len(first))), tuple(rng.choices(plain, k=tokens)))
        for _ in range(texts)
    ]


def _compared(found: Mapping[str, Sequence[Position]], allowed: float) -> tuple[Noise, ...]:
    whole = found[_ONE_PASS]
    rows = []
    for way, positions in found.items():
        if way == _ONE_PASS:
            continue
        moves, wrong = [], 0
        for stock, other in zip(whole, positions, strict=True):
            values = dict(stock.top)
            (token, value), best = max(other.top, key=_value), max(values.values())
            moves.append(_ulps(best, value))
            # A token that is not even among the pass's first few lies below the last of them.
            wrong += _ulps(best, values.get(token, min(values.values()))) > allowed
        furthest = tuple(sorted(moves, reverse=True)[:_SHOWN])
        over = sum(move > MOVED["bf16_ulp"] for move in moves)
        rows.append(Noise(way, len(moves), furthest, over, wrong))
    return tuple(rows)


def _value(candidate: tuple[int, float]) -> float:
    return candidate[1]


def _ulps(one: float, other: float) -> float:
    return gap(max(one, other), min(one, other), "bf16_ulp", _LEAST_MAGNITUDE)


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0, or 2 with the reason on stderr."""
    parser = OneLineParser(prog="python -m farm.bench.row_noise", description=__doc__)
    parser.add_argument("setting")
    parser.add_argument("--texts", type=int, default=160)
    parser.add_argument("--tokens", type=int, default=240, help="of each text")
    parser.add_argument("--allowed", type=float, default=4.0, help="gap, in BF16 ULPs")
    parser.add_argument("--no-start", action="store_true", help="random from the first token on")
    parser.add_argument("--json", action="store_true", help="one JSON array")
    options = parser.parse_args(arguments)
    if options.texts < 1 or options.tokens < 1 or options.allowed <= 0:
        parser.error("--texts, --tokens and --allowed: above 0")
    try:
        found = row_noise(
            options.setting, options.texts, options.tokens, options.allowed, not options.no_start
        )
    except SpecfarmError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    if options.json:
        print(json.dumps([asdict(noise) for noise in found]))
        return 0
    for noise in found:
        furthest = ", ".join(f"{move:.1f}" for move in noise.furthest)
        print(
            f"{noise.way}: {noise.positions} positions; best value moved by {furthest} ULPs at the "
            f"furthest, by more than {MOVED['bf16_ulp']:g} at {noise.over_limit}; "
            f"{noise.wrong} choices further than {options.allowed:g} ULPs below"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
