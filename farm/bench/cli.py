"""Benchmark one launched arm: `python -m farm.bench.cli SETTING LABEL {cpu|GPU} [--out F]`.

The label's stem names the arm: `final-1` -> final, `stock-2` -> stock. The result, with every
output id and arrival, goes to `work/bench/LABEL.json` of the data folder.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import cast

from engines.engine_cpus import engine_cpus
from engines.launcher import launch
from engines.process_registry import ProcessRegistry
from engines.resolve import resolve_arm
from engines.serve import present_hardware
from farm.bench.errors import MeasurementError
from farm.bench.modes import measure
from farm.bench.plan import MeasurementPlan
from farm.bench.recording import Recording
from farm.bench.result_file import BenchResult, check_writable, write_result
from farm.bench.steps import accept_length, decode_steps
from farm.bench.warm import warm
from farm.machine import machine_facts, moment
from farm.search.prompts import as_requests
from farm.timing_lock import timing_lock
from settings.errors import SpecfarmError
from settings.loading import load_setting
from settings.one_line_parser import OneLineParser
from settings.paths import work_dir
from settings.prompts import search_prompts
from settings.schema import ArmName
from settings.weights import ensure_target

ARMS = ("ar", "stock", "final")
_WARM_REQUESTS = 2


def arm_of(label: str) -> ArmName:
    """The arm a label names: its stem before the first `-`.

    Raises:
        MeasurementError: no such arm, or the label cannot be a file name.
    """
    stem = label.split("-", 1)[0]
    if stem not in ARMS or "/" in label:
        raise MeasurementError(
            f"label {label!r} names no arm", f"Begin it with one of {', '.join(ARMS)}: final-1."
        )
    return cast(ArmName, stem)


def bench(setting_name: str, label: str, device: str, out: Path | None = None) -> BenchResult:
    """Launch, warm, time over the setting's search prompts, write the result file."""
    arm = arm_of(label)
    path = out or work_dir("bench") / f"{label}.json"
    check_writable(path)
    setting = load_setting(setting_name)
    hardware_name = present_hardware(device)
    if hardware_name != setting.hardware.gpu:
        raise MeasurementError(
            f"{setting.name} is a setting for {setting.hardware.gpu}, {device} is {hardware_name}",
            "Bench it on the hardware it names.",
        )
    for leftover in ProcessRegistry().reap_leftovers():
        _say(f"ended {leftover.arm} (pid {leftover.pid}) of a killed run")
    model_dir = ensure_target(setting, _say)
    requests = as_requests(setting, search_prompts(setting, model_dir))
    tree = resolve_arm(setting, arm, hardware_name=hardware_name)
    plan = MeasurementPlan(
        mode="abba",
        prompts=len(requests),
        repeats=setting.measurement.repeats,
        pause_idle=False,
    )
    with timing_lock(f"bench {label}"):
        env = {"CUDA_VISIBLE_DEVICES": "" if device == "cpu" else device}
        cpus = engine_cpus(setting.hardware.threads)
        with launch(
            setting, arm, tree.path, tree.tree_hash, model_dir, cpus=cpus, env_extra=env
        ) as engine:
            warmed = warm(
                engine, requests[:_WARM_REQUESTS], max_rounds=setting.measurement.warm_rounds_max
            )
            _say(f"warm-up: {warmed.rounds} rounds, {warmed.note}")
            recording = measure({arm: engine}, requests, plan)
        facts = machine_facts() | moment()
    result = BenchResult(
        label=label,
        setting=setting.name,
        arm=arm,
        device=device,
        tree_hash=tree.tree_hash,
        recording=recording,
        warm=asdict(warmed),
        machine=facts,
        summary=summary(recording, arm),
    )
    write_result(path, result)
    _say(f"{path}: {describe(result)}")
    return result


def summary(recording: Recording, arm: str) -> dict[str, object]:
    """Figures for readers: one run of one arm, on its own, compares with nothing."""
    runs = [run for run in recording.runs if run.arm == arm]
    timed = [s for s in map(decode_steps, runs) if s.count]
    rates = [s.total_tokens / s.seconds for s in timed]
    return {
        "decode_tokens_per_s_median": statistics.median(rates) if rates else None,
        "ttft_s_median": statistics.median(run.ttft_s for run in runs),
        "accept_length": accept_length(runs) if timed else None,
        "answers": len(runs),
        "output_tokens": sum(len(run.output_ids) for run in runs),
    }


def describe(result: BenchResult) -> str:
    """One line."""
    figures = result.summary
    if figures["decode_tokens_per_s_median"] is None:
        return f"{result.label}: {figures['answers']} answers without a decode step"
    return (
        f"{result.label} (tree {result.tree_hash[:12]}): "
        f"{figures['decode_tokens_per_s_median']:.2f} decode tokens/s (median of "
        f"{figures['answers']} answers), accept length {figures['accept_length']:.3f}, "
        f"TTFT {figures['ttft_s_median']:.3f} s"
    )


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0, or 2 with the reason on stderr."""
    parser = OneLineParser(prog="bench.sh", description=__doc__)
    parser.add_argument("setting")
    parser.add_argument("label", help="ARM-SOMETHING, e.g. final-1")
    parser.add_argument("device", metavar="GPU", help="cpu or a GPU index")
    parser.add_argument("--out", type=Path, help="default: work/bench/LABEL.json")
    options = parser.parse_args(arguments)
    try:
        bench(options.setting, options.label, options.device, options.out)
    except SpecfarmError as error:
        _say(f"error: {error}")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
