"""Compare the modes and estimators on real engines with planted slow-downs.

`python -m farm.bench.study --out F.json --minutes M [--setting S]`: stock beside stock and beside
stock slowed by 3, 5 and 10 %, each recorded once a mode; every estimator is then run on every
recording, and the recordings are kept in F.json (`--again F.json` evaluates them anew, untimed).
Run it when nothing else runs, and again when much does.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path

from engines.answers import GenerationRequest
from engines.engine_cpus import engine_cpus
from engines.launcher import launch
from engines.resolve import import_stock, store_for
from farm.bench.errors import MeasurementError
from farm.bench.modes import measure
from farm.bench.plan import MeasurementPlan
from farm.bench.planted import plant_slowdown
from farm.bench.protocol import PausableEngine
from farm.bench.recording import Recording, recording_from_json
from farm.bench.result_file import write_json
from farm.bench.study_table import StudyRow, render, rows_of
from farm.bench.warm import warm
from farm.machine import machine_facts, moment
from farm.search.prompts import as_requests
from farm.timing_lock import timing_lock
from settings.errors import SpecfarmError
from settings.loading import load_setting
from settings.prompts import search_prompts
from settings.schema import Setting
from settings.weights import ensure_target

PLANTED = (0.0, 0.03, 0.05, 0.10)
# Many prompts and few repeats for pairing; few prompts and many repeats for position-wise minima.
PLANS = {
    "slices": MeasurementPlan(mode="slices", prompts=12, repeats=50),
    "slices-repeats": MeasurementPlan(mode="slices", prompts=6, repeats=100),
    "slices-long": MeasurementPlan(mode="slices", prompts=12, repeats=50, slice_s=(0.3, 0.5)),
    "abba": MeasurementPlan(mode="abba", prompts=12, repeats=50),
}
_WARM_REQUESTS = 1
DEFAULT_SETTING = "cpu_c1_smollm2-135m_ngram"


def record(
    setting: Setting,
    minutes: float,
    plans: Sequence[str],
    planted: Sequence[float] = PLANTED,
) -> list[tuple[str, float, Recording]]:
    """(plan, planted share, recording) of every combination; the timed part takes `minutes`."""
    model_dir = ensure_target(setting, _say)
    requests = as_requests(setting, search_prompts(setting, model_dir))
    store = store_for(setting)
    stock = import_stock(setting, store)
    found = []
    seconds = minutes * 60 / (len(planted) * len(plans))
    with timing_lock("estimator study", on_wait=lambda who, s: _say(f"waiting for {who}")):
        for number, share in enumerate(planted):
            slowed = plant_slowdown(store, stock, share)
            with ExitStack() as stack:
                engines: dict[str, PausableEngine] = {
                    label: stack.enter_context(
                        launch(
                            setting,
                            "stock",
                            store.checkout(tree.commit),
                            tree.tree_hash,
                            model_dir,
                            cpus=engine_cpus(setting.hardware.threads),
                        )
                    )
                    for label, tree in (("stock", stock), ("slowed", slowed))
                }
                _warm_all(engines, requests)
                for name in plans:
                    _say(f"planted {share:.0%}, {name}: {seconds:.0f} s")
                    plan = _spend(PLANS[name], seconds, seed=number)
                    recording = measure(engines, requests, plan)
                    found.append((name, share, recording))
                    _say(render(rows_of(recording, share)))
    return found


def _warm_all(engines: dict[str, PausableEngine], requests: Sequence[GenerationRequest]) -> None:
    for label, engine in engines.items():
        warmed = warm(engine, requests[:_WARM_REQUESTS])
        _say(f"{label}: {warmed.rounds} warm-up rounds, {warmed.note}")


def _spend(plan: MeasurementPlan, seconds: float, seed: int) -> MeasurementPlan:
    fields = plan.to_json() | {"slice_s": plan.slice_s, "budget_s": seconds, "seed": seed}
    return MeasurementPlan(**fields)


def evaluate(recordings: Sequence[tuple[str, float, Recording]]) -> list[StudyRow]:
    """Every estimator on every recording; the plan's name stands for the mode."""
    rows = []
    for name, share, recording in recordings:
        for row in rows_of(recording, share):
            rows.append(StudyRow(**{**asdict(row), "mode": name}))
    return rows


def _load(path: Path) -> list[tuple[str, float, Recording]]:
    try:
        data = json.loads(path.read_text())
        return [
            (entry["plan"], entry["planted"], recording_from_json(entry["recording"], str(path)))
            for entry in data["recordings"]
        ]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise MeasurementError(f"{path} is no study file: {error!r}", "Run the study.") from error


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints the table; exit code 2 with the reason when it cannot be made."""
    parser = argparse.ArgumentParser(prog="farm.bench.study", description=__doc__)
    parser.add_argument("--out", type=Path, help="where the recordings and the table go")
    parser.add_argument("--minutes", type=float, default=15.0, help="timed minutes in all")
    parser.add_argument("--setting", default=DEFAULT_SETTING)
    parser.add_argument("--plans", nargs="+", choices=sorted(PLANS), default=list(PLANS))
    parser.add_argument("--planted", nargs="+", type=float, default=list(PLANTED))
    parser.add_argument("--again", type=Path, help="evaluate the recordings of an earlier run")
    options = parser.parse_args(arguments)
    try:
        before = machine_facts() | moment()
        if options.again:
            found = _load(options.again)
        else:
            setting = load_setting(options.setting)
            found = record(setting, options.minutes, options.plans, options.planted)
        rows = evaluate(found)
        if options.out:
            data = {
                "setting": options.setting,
                "machine": before,
                "rows": [asdict(row) for row in rows],
                "recordings": [
                    {"plan": name, "planted": share, "recording": recording.to_json()}
                    for name, share, recording in found
                ],
            }
            write_json(options.out, data)
    except SpecfarmError as error:
        _say(f"error: {error}")
        return error.exit_code
    print(render(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
