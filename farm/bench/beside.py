"""AR beside transformers' own `generate`, interleaved on this machine:
`python -m farm.bench.beside SETTING [--seconds 120] [--launches 3] [--out F.json]`.

Both serve the setting's target in its dtype with its threads, resident together and measured as a
campaign measures them (the setting's mode and estimator, its search prompts); the interval holds
the spread between launches. Nothing is verified here: how many answers are the same is only told.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from engines.process_registry import ProcessRegistry
from engines.resolve import import_stock, store_for
from farm.bench.errors import MeasurementError
from farm.bench.recording import merge_launches, recording_from_json
from farm.bench.result_file import check_writable, write_json
from farm.campaign.context import Measured
from farm.campaign.jobs import ArmSpec, MeasureJob
from farm.machine import machine_facts, moment
from farm.search.assemble import import_reference
from farm.search.bench_statistics import BenchStatistics
from farm.search.prompts import as_requests
from farm.statistics.agreement import Agreement, output_agreement
from farm.workers.measure import run_measure_job
from settings.errors import SpecfarmError
from settings.loading import load_setting
from settings.one_line_parser import OneLineParser
from settings.prompts import search_prompts
from settings.weights import ensure_target

SCHEMA = "specfarm-beside-1"


@dataclass(frozen=True)
class Beside:
    """AR over the reference. `recordings` holds farm.bench's JSON, one a launch."""

    setting: str
    dtype: str
    threads: int
    ar: str
    measured: Measured
    agreement: Agreement
    recordings: tuple[dict[str, Any], ...]

    def text(self) -> str:
        ratio, same = self.measured.ratio, self.agreement
        mean = self.measured.mean_throughput_ratio
        lines = [
            f"{self.setting} ({self.dtype}, {self.threads} thread(s)): AR ({self.ar}) over "
            f"{ratio.baseline}  x{ratio.ratio:.3f}  95 % [{ratio.low:.3f}, {ratio.high:.3f}]",
            f"  {ratio.method}" + ("" if mean is None else f"; mean throughput x{mean:.3f}"),
            f"  outputs: {same.identical} of {same.pairs} answers identical, "
            f"{same.common_prefix_share:.1%} of tokens before the first difference",
        ]
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        return {"schema": SCHEMA, **asdict(self), "machine": machine_facts() | moment()}


def beside(setting_name: str, seconds: float, launches: int) -> Beside:
    """Measures `launches` fresh pairs of engines.

    Args:
        seconds: timed seconds over all launches; each takes as many more as its fewest prompts
            need.

    Raises:
        MeasurementError: an engine failed; says which and how.
    """
    setting = load_setting(setting_name)
    for leftover in ProcessRegistry().reap_leftovers():
        _say(f"ended {leftover.arm} (pid {leftover.pid}) of a killed run")
    requests = as_requests(setting, search_prompts(setting, ensure_target(setting, _say)))
    store = store_for(setting)
    stock, reference = import_stock(setting, store), import_reference(store)
    arms = (
        ArmSpec("ar", "ar", setting.engine.name, stock.commit, stock.tree_hash),
        ArmSpec("reference", "ar", "transformers", reference.commit, reference.tree_hash),
    )
    recordings = []
    for launch in range(launches):
        job = MeasureJob(
            unit=f"beside:{launch}",
            setting=setting_name,
            arms=arms,
            requests=requests,
            subject="ar",
            denominator="reference",
            seconds=seconds / launches,
            seed=launch,
            stop_losers=False,
        )
        outcome = run_measure_job(job, store)
        if outcome.recording is None:
            raise MeasurementError(
                f"launch {launch}: {outcome.blamed or 'the machine'}: {outcome.status}: "
                f"{outcome.error}",
                "Repair it and run again",
            )
        took = outcome.seconds - outcome.waited_s
        _say(f"launch {launch + 1} of {launches}: {took:.0f} s")
        recordings.append(outcome.recording)
    merged = merge_launches([recording_from_json(recording) for recording in recordings])
    return Beside(
        setting=setting.name,
        dtype=setting.target.weights_dtype,
        threads=setting.hardware.threads,
        ar=f"{setting.engine.name}-{stock.tree_hash[:12]}-ar",
        measured=BenchStatistics(setting.measurement.estimator).estimate(
            recordings, "ar", "reference", f"transformers-{version('transformers')}"
        ),
        agreement=output_agreement(merged.answers("ar"), merged.answers("reference")),
        recordings=tuple(recordings),
    )


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0, or 2 with the reason on stderr."""
    parser = OneLineParser(prog="python -m farm.bench.beside", description=__doc__)
    parser.add_argument("setting")
    parser.add_argument("--seconds", type=float, default=120.0, help="timed, over all launches")
    parser.add_argument("--launches", type=int, default=3)
    parser.add_argument("--out", type=Path, help="also write ratio, machine and recordings as JSON")
    options = parser.parse_args(arguments)
    if not 1.0 <= options.seconds <= 86_400.0:
        parser.error(f"--seconds: {options.seconds:g} is not 1 to 86400")
    if options.launches < 1:
        parser.error(f"--launches: {options.launches} is not positive")
    try:
        if options.out is not None:
            check_writable(options.out)
        found = beside(options.setting, options.seconds, options.launches)
    except SpecfarmError as error:
        _say(f"error: {error}")
        return error.exit_code
    if options.out is not None:
        write_json(options.out, found.to_json())
    print(found.text())
    return 0


if __name__ == "__main__":
    sys.exit(main())
