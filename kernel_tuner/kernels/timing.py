"""Graph replay of many launches over rotating weights, arms interleaved, clocks sampled."""

from __future__ import annotations

import statistics
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch

Launch = Callable[[int], object]
_QUERY = "clocks.sm,clocks.mem,power.draw,temperature.gpu"


def capture(launch: Launch, launches: int) -> torch.cuda.CUDAGraph:
    """A graph of `launches` calls `launch(i)`, warmed up once."""
    launch(0)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for i in range(launches):
            launch(i)
    graph.replay()
    torch.cuda.synchronize()
    return graph


def replay_us(graph: torch.cuda.CUDAGraph) -> float:
    """Device time of one replay, microseconds."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
    start.record()
    graph.replay()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end)) * 1000


def interleaved(
    arms: Mapping[str, Launch], launches: int, repeats: int = 9
) -> dict[str, tuple[float, float]]:
    """Per arm (median, spread) microseconds a launch; spread = (max - min) / median."""
    graphs = {name: capture(launch, launches) for name, launch in arms.items()}
    samples: dict[str, list[float]] = {name: [] for name in arms}
    for _ in range(repeats):
        for name, graph in graphs.items():
            samples[name].append(replay_us(graph) / launches)
    result = {}
    for name, values in samples.items():
        middle = statistics.median(values)
        result[name] = (middle, (max(values) - min(values)) / middle)
    return result


@dataclass
class ClockSampler:
    """Samples nvidia-smi beside a measurement; `summary` gives min, median, max of each column."""

    period_s: float = 0.25
    rows: list[list[float]] = field(default_factory=list)
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def __enter__(self) -> ClockSampler:
        self._thread = threading.Thread(target=self._loop, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        if self._thread:
            self._thread.join()

    def _loop(self) -> None:
        command = ["nvidia-smi", f"--query-gpu={_QUERY}", "--format=csv,noheader,nounits"]
        while not self._stop.is_set():
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode == 0:
                first = done.stdout.splitlines()[0]
                self.rows.append([float(value) for value in first.split(",")])
            time.sleep(self.period_s)

    def summary(self) -> dict[str, list[float]]:
        names = ("sm_mhz", "mem_mhz", "power_w", "temperature_c")
        columns = zip(*self.rows, strict=True)
        return {
            name: [min(column), statistics.median(column), max(column)]
            for name, column in zip(names, columns, strict=False)
        }
