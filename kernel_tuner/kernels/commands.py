"""What `specfarm kernels` and `python -m kernel_tuner.kernels` call."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from kernel_tuner.kernels.registry import KERNELS
from kernel_tuner.kernels.report import CheckLine, line


def list_kernels() -> list[str]:
    """A line a kernel: name, architectures, what it is, its oracle."""
    return [
        f"{k.name:16} {','.join(k.architectures):14} {k.summary} (oracle: {k.oracle})"
        for k in KERNELS
    ]


def _check_format() -> CheckLine:
    from native_engine.w12 import decode_matrix, pack_matrix

    bits = np.random.default_rng(0).permutation(np.arange(1 << 16, dtype=np.uint16))
    matrix = bits.reshape(256, 256)
    good = all(np.array_equal(decode_matrix(pack_matrix(matrix, b)), matrix) for b in range(241))
    return line("w12_cpu", "65,536 patterns, 241 windows", good, "pack, decode, compare")


def _check_builds() -> Iterator[CheckLine]:
    from native_engine.kernels.build import ARCHITECTURES, KernelBuildError, find_nvcc, resources

    try:
        find_nvcc()
    except KernelBuildError as error:
        yield CheckLine("w12_skinny", "compile", "not_run", str(error))
        return
    for architecture in ARCHITECTURES.values():
        try:
            found = resources(architecture)
        except KernelBuildError as error:
            yield CheckLine("w12_skinny", f"compile {architecture}", "failed", str(error))
            continue
        for form in ("bf16", "w12"):
            used = [r for name, r in found.items() if name.startswith(form)]
            most = max(r["registers"] for r in used)
            spilled = max(r["spilled"] for r in used)
            detail = f"{len(used)} kernels, {most} registers, at most {spilled} bytes spilled"
            yield line(f"{form}_skinny", f"compile {architecture}", bool(used), detail)


def check_kernels(
    *, quick: bool = False, stress: int = 36_000, gpu: bool | None = None
) -> Iterator[CheckLine]:
    """Every kernel against its oracle on what this machine has, and compiled for all targets."""
    import torch

    if not quick:
        yield _check_format()
        yield from _check_builds()
    if not (torch.cuda.is_available() if gpu is None else gpu):
        yield CheckLine("w12_skinny", "bitwise on a GPU", "not_run", "no CUDA device here")
        return
    from kernel_tuner.kernels.fidelity import check_fidelity
    from kernel_tuner.kernels.stress import check_stress

    yield from check_fidelity(quick)
    if stress:
        yield from check_stress(stress)


def bench_kernels(
    out: Path | None = None,
    *,
    tokens: Sequence[int] = (1, 8, 16, 32),
    densities: Sequence[float] = (0.0002, 0.01),
    shapes: Sequence[tuple[int, int]] | None = None,
    repeats: int = 9,
) -> list[str]:
    """Benchmark on the GPU of this machine; JSON lines go to `out`, a summary is returned."""
    from kernel_tuner.kernels import bench
    from kernel_tuner.kernels.cases import PRODUCTION

    return bench.run(out, shapes or PRODUCTION, tokens=tokens, densities=densities, repeats=repeats)


def bench_stacks(
    out: Path | None = None, *, tokens: Sequence[int] = (1, 8, 32), names: Sequence[str] = ()
) -> list[str]:
    """All linear layers of the models' decode steps, W12 against cuBLAS."""
    import torch

    from kernel_tuner.kernels.cases import STACKS
    from kernel_tuner.kernels.stacks import StackBench
    from kernel_tuner.kernels.timing import ClockSampler

    lines = []
    with ClockSampler() as clocks:
        for stack in STACKS:
            if names and stack.name not in names:
                continue
            bench = StackBench(stack)
            lines += [json.dumps(bench.measure(m)) for m in tokens]
            del bench
            torch.cuda.empty_cache()
    lines.append(json.dumps({"clocks": clocks.summary()}))
    if out:
        out.write_text("\n".join(lines) + "\n")
    return lines


def pack(directory: Path, out: Path | None = None) -> list[str]:
    """Pack a folder of BF16 safetensors; returns the size and escape table."""
    from native_engine.w12.stream import pack_directory

    return pack_directory(directory, out or directory.with_name(directory.name + "-w12"))
