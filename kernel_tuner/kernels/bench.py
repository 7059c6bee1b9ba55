"""Benchmarks of the skinny kernels on one GPU, one JSON record a measurement."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any

import torch

from kernel_tuner.kernels.arms import arms_of, build, launches_for
from kernel_tuner.kernels.cases import PRODUCTION
from kernel_tuner.kernels.timing import ClockSampler, interleaved
from native_engine.kernels.schedule import MAX_CONSUMERS, Launch, Schedule
from native_engine.kernels.skinny import KernelLaunchError, schedule_for


@dataclass(frozen=True)
class Record:
    """Median microseconds a launch of every arm on one matrix."""

    rows: int
    cols: int
    escape_rate: float
    tokens: int
    us: dict[str, float]
    spread: dict[str, float]
    tb_s: dict[str, float]
    schedule: str

    def speedup(self, arm: str, over: str = "cublas") -> float:
        return self.us[over] / self.us[arm]


def measure(
    shapes: Sequence[tuple[int, int]],
    densities: Sequence[float],
    tokens: Sequence[int],
    repeats: int = 9,
) -> Iterator[Record]:
    """Every shape, density and M."""
    for rows, cols in shapes:
        plan = schedule_for(rows, cols, 0)
        for density in densities:
            matrix = build(rows, cols, density)
            for m in tokens:
                times = interleaved(arms_of(matrix, m), launches_for(matrix), repeats)
                us = {arm: round(t, 3) for arm, (t, _) in times.items()}
                rate = {a: round(matrix.bytes_of(a) / t / 1e6, 3) for a, t in us.items()}
                spread = {arm: round(s, 4) for arm, (_, s) in times.items()}
                yield Record(rows, cols, matrix.escape_rate, m, us, spread, rate, str(plan))
            del matrix
            torch.cuda.empty_cache()


def geomean(values: Sequence[float]) -> float:
    return math.exp(sum(math.log(value) for value in values) / max(1, len(values)))


def summarise(records: Sequence[Record]) -> list[str]:
    """The geomean table: a line for each (density, M), speed-ups over cuBLAS."""
    lines = []
    keys = sorted({(round(r.escape_rate, 3), r.tokens) for r in records})
    for rate, m in keys:
        chosen = [r for r in records if (round(r.escape_rate, 3), r.tokens) == (rate, m)]
        parts = [
            f"{arm} {geomean([r.speedup(arm) for r in chosen]):.3f}"
            for arm in chosen[0].us
            if arm != "cublas"
        ]
        lines.append(f"escapes~{rate:.3f} M={m:<3} x cuBLAS: {'  '.join(parts)}")
    return lines


def sweep(
    shapes: Sequence[tuple[int, int]], tokens: Sequence[int], repeats: int = 5
) -> Iterator[dict[str, Any]]:
    """W12 time of every candidate schedule and way to launch it, plain and dependent."""
    sms = torch.cuda.get_device_properties(0).multi_processor_count
    for (rows, cols), density in product(shapes, (0.0002, 0.01)):
        for plan in candidates(rows, cols, sms):
            matrix = build(rows, cols, density, schedule=plan)
            for m, how in product(tokens, _ways(plan)):
                arms = arms_of(matrix, m, how)
                chosen = {arm: arms[arm] for arm in ("w12", "w12_pdl")}
                try:
                    times = interleaved(chosen, launches_for(matrix, 1500), repeats)
                except KernelLaunchError:  # does not fit in shared memory
                    continue
                us = {arm: round(t, 3) for arm, (t, _) in times.items()}
                shape = {"rows": rows, "cols": cols, "density": density, "tokens": m}
                yield {**shape, **asdict(plan), **asdict(how), **us}
            del matrix
            torch.cuda.empty_cache()


def _ways(plan: Schedule) -> list[Launch]:
    return [
        Launch(grouped, stages)
        for grouped in (False, True)
        if plan.warps(grouped) <= MAX_CONSUMERS
        for stages in (2, 3, 4, 6, 8)
    ]


def candidates(rows: int, cols: int, multiprocessors: int) -> list[Schedule]:
    """Sensible schedules around the default one."""
    found = {schedule_for(rows, cols, 0)}
    tiles = rows // 16
    for cluster in (1, 2):
        least = -(-tiles // (multiprocessors // cluster))
        for each, split, chunk in product((least, least + 1), (1, 2, 3, 4, 5, 6, 8), (1, 2)):
            if 10 <= each * split <= MAX_CONSUMERS:
                found.add(Schedule(-(-tiles // each), cluster, each, split, chunk))
        if cluster == 1 and least > 8:
            for passes in range(-(-least // MAX_CONSUMERS), -(-least // 8) + 1):
                for groups in {multiprocessors, -(-tiles // least)}:
                    found.add(Schedule(groups, 1, -(-least // passes), 1, 2))
    return sorted(found, key=str)


def run(out: Path | None, shapes: Sequence[tuple[int, int]] = PRODUCTION, **how: Any) -> list[str]:
    """Measure, write JSON lines (records, then clocks), return the summary."""
    began = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime())
    with ClockSampler() as clocks:
        records = list(measure(shapes, **how))
    context = {
        "began": began,
        "device": torch.cuda.get_device_name(0),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "clocks": clocks.summary(),
    }
    if out:
        lines = [json.dumps(asdict(record)) for record in records]
        out.write_text("\n".join([json.dumps(context), *lines]) + "\n")
    rows = [
        f"{r.rows}x{r.cols} esc {r.escape_rate:.4%} M={r.tokens}: "
        + "  ".join(f"{arm} {us:.1f} ({r.tb_s[arm]:.2f})" for arm, us in r.us.items())
        for r in records
    ]
    return [json.dumps(context), *rows, *summarise(records)]
