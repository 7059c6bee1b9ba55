"""A setting's stock engine and this machine's memory, measured: CPU settings of the native engine.

Component times come from the engine's own in-process benchmark; they are minima, each clocked on
its own. The stream is one read of a large buffer by as many threads as the setting has."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from time import perf_counter
from typing import Any

from engines.errors import EngineError
from engines.resolve import import_stock, store_for
from settings.schema import Setting
from settings.weights import ensure_drafter

STREAM_BYTES = 1 << 29
DEADLINE_S = 600.0
_DRAFT = ("context", "draft", "draft_head")


def component_ms(setting: Setting, model: Path, context: int) -> dict[str, float]:
    """Milliseconds of a step by component, with what the drafter takes where it has weights.

    Raises:
        EngineError: the benchmark failed; carries its last line.
    """
    store = store_for(setting)
    tree = store.checkout(import_stock(setting, store).commit)
    command = [sys.executable, "-m", "native_tools.bench", "--model-dir", str(model)]
    command += ["--dtype", setting.target.weights_dtype, "--context", str(context)]
    command += ["--threads", str(setting.hardware.threads), "--tokens", "16", "--repeats", "1"]
    drafter = ensure_drafter(setting)
    if drafter is not None:
        command += ["--draft-model-dir", str(drafter)]
    try:
        done = subprocess.run(
            command, cwd=tree, capture_output=True, text=True, timeout=DEADLINE_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise EngineError(f"the engine's benchmark took over {DEADLINE_S:g} s") from None
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no output"])[-1]
        raise EngineError(f"the engine's benchmark failed: {last}")
    return of_report(json.loads(done.stdout)["component_ms"])


def of_report(component_ms: dict[str, dict[str, float]]) -> dict[str, float]:
    """The benchmark's table of the widest step, drafter included, under the cost model's names."""
    widest = max((name for name in component_ms if name.endswith("_rows")), key=_rows)
    times = {name: ms for name, ms in component_ms[widest].items() if name != "total"}
    draft = component_ms.get("draft")
    if draft is not None:
        times |= {"draft": sum(draft[name] for name in _DRAFT), "selector": draft["selector"]}
    return times


def _rows(name: str) -> int:
    return int(name.removesuffix("_rows"))


def stream_bytes_per_s(threads: int, repeats: int = 7) -> float:
    """Bytes a second of a read-only stream through main memory, the best of `repeats`."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        data: Any = torch.ones(STREAM_BYTES // 8, dtype=torch.int64)
        best = float("inf")
        for _ in range(repeats):
            began = perf_counter()
            data.sum()
            best = min(best, perf_counter() - began)
        return STREAM_BYTES / best
    finally:
        torch.set_num_threads(before)
