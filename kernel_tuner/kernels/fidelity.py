"""W12 against our BF16 kernel bit for bit, our BF16 kernel against FP64, rows against M."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

from kernel_tuner.kernels.cases import random_patterns, random_weight
from kernel_tuner.kernels.report import CheckLine, line
from native_engine.kernels import schedule as schedules
from native_engine.kernels.schedule import Launch, Schedule
from native_engine.kernels.skinny import (
    RawWeight,
    W12Weight,
    launch_for,
    linear,
    raw_weight,
    shared_bytes,
    w12_weight,
)
from native_engine.w12.pack_torch import pack_tensor

_POISON = 0x7FA5
ALL_TOKENS = tuple(range(1, 65))
FEW_TOKENS = (1, 2, 7, 8, 9, 16, 17, 31, 32, 33, 48, 64)


def run(
    x: torch.Tensor,
    weight: RawWeight | W12Weight,
    dtype: torch.dtype,
    dependent: bool = False,
    how: Launch | None = None,
) -> torch.Tensor:
    """One launch into a poisoned output, as integers."""
    out = torch.empty(x.shape[0], weight.rows, dtype=dtype, device=x.device)
    integers = out.view(torch.int16 if dtype == torch.bfloat16 else torch.int32)
    integers.fill_(_POISON)
    linear(x, weight, out, dependent=dependent, launch=how)
    return integers


def _other_way(weight: RawWeight | W12Weight, tokens: int) -> Launch | None:
    """Launch with the other grouping of warps, as deep as fits; None where it does not."""
    plan, tiles = weight.schedule, schedules.token_tiles(tokens)
    block = schedules.W12_BYTES if isinstance(weight, W12Weight) else schedules.RAW_BYTES
    shared, room = shared_bytes(0), weight.staged.room
    usual = launch_for(plan, block, room, tokens, False, 0)
    if plan.warps(not usual.grouped) > schedules.MAX_CONSUMERS:
        return None
    try:
        stages = schedules.deepest(plan, block, room, tiles, shared)
    except ValueError:
        return None
    return Launch(not usual.grouped, stages)


def compare(
    weight: torch.Tensor, tokens: Sequence[int], schedule: Schedule | None = None
) -> tuple[int, int, float, int]:
    """(mismatching outputs W12 vs BF16, rows that depend on M, worst error vs FP64, escapes)."""
    packed = pack_tensor(weight)
    raw, w12 = raw_weight(weight, schedule), w12_weight(packed, weight.device, schedule)
    x = torch.randn(64, weight.shape[1], device=weight.device).to(torch.bfloat16)
    exact = x.double() @ weight.double().t()
    widest = run(x, raw, torch.float32)
    different = dependent_rows = 0
    worst = 0.0
    for m in tokens:
        sums = run(x[:m], raw, torch.float32)
        dependent_rows += int((sums != widest[:m]).any(dim=1).sum())
        error = (sums.view(torch.float32).double() - exact[:m]).norm() / exact[:m].norm()
        worst = max(worst, float(error)) if bool(error == error) else float("inf")
        halves = run(x[:m], raw, torch.bfloat16)
        rounded = sums.view(torch.float32).to(torch.bfloat16).view(torch.int16)
        different += int((halves != rounded).sum())
        for pdl in (False, True):
            different += int((run(x[:m], w12, torch.float32, pdl) != sums).sum())
            different += int((run(x[:m], w12, torch.bfloat16, pdl) != halves).sum())
            different += int((run(x[:m], raw, torch.bfloat16, pdl) != halves).sum())
        for form in (raw, w12):
            if how := _other_way(form, m):
                different += int((run(x[:m], form, torch.float32, False, how) != sums).sum())
    return different, dependent_rows, worst, packed.entries.numel()


def _lines(
    what: str, weight: torch.Tensor, tokens: Sequence[int], schedule: Schedule | None = None
) -> Iterator[CheckLine]:
    different, rows, worst, escapes = compare(weight, tokens, schedule)
    label = f"{weight.shape[0]}x{weight.shape[1]} {what}"
    rate = escapes / weight.numel()
    detail = f"{different} mismatches, {len(tokens)} values of M, escapes {rate:.4%}"
    yield line("w12_skinny", label, different == 0, detail)
    good = rows == 0 and worst < 3e-5
    yield line("bf16_skinny", label, good, f"error {worst:.1e}, rows depending on M: {rows}")


SHAPES = ((16, 64), (48, 192), (80, 640), (320, 4096), (1040, 1088), (4096, 4096), (5120, 6144))
DENSITIES = (0.0, 0.0002, 0.01, 0.05)


def check_fidelity(quick: bool = False) -> Iterator[CheckLine]:
    """Every escape density on small and production shapes; `quick` for the sanitizers."""
    for seed, (rows, cols) in enumerate(SHAPES[:3] if quick else SHAPES):
        tokens = (1, 9, 64) if quick else ALL_TOKENS if rows * cols < 1 << 21 else FEW_TOKENS
        for density in DENSITIES[2:] if quick else DENSITIES:
            weight = random_weight(rows, cols, density, "cuda", seed)
            yield from _lines(f"density {density:g}", weight, tokens)
        weight = random_weight(rows, cols, 0.0002, "cuda", seed, full_tile=True)
        yield from _lines("one tile all escapes", weight, tokens)
        yield from _lines("any finite pattern", random_patterns(rows, cols, "cuda"), tokens)
    for schedule, rows, cols in CORNERS[-3:] if quick else CORNERS:
        weight = random_weight(rows, cols, 0.01, "cuda", 5)
        yield from _lines(f"{schedule}", weight, (1, 8, 40) if quick else FEW_TOKENS, schedule)
    if not quick:
        for rows, cols in ((34816, 5120), (5120, 17408), (16384, 5120), (24576, 4096)):
            weight = random_weight(rows, cols, 0.0002, "cuda", 9)
            yield from _lines("density 0.0002", weight, (1, 8, 16, 32, 64))


# split and unsplit k ranges, several passes, uneven groups, tails of every loop
CORNERS = (
    (Schedule(1, 1, 20, 1, 2), 16 * 41, 64 * 3),
    (Schedule(3, 1, 2, 1, 1), 16 * 17, 64 * 70),
    (Schedule(5, 1, 2, 8, 1), 16 * 10, 64 * 37),
    (Schedule(3, 1, 2, 5, 2), 16 * 5, 64 * 47),
    (Schedule(3, 2, 5, 2, 2), 16 * 13, 64 * 35),
    (Schedule(2, 2, 1, 8, 1), 16 * 2, 64 * 2),
    (Schedule(2, 3, 4, 2, 1), 16 * 7, 64 * 50),
    (Schedule(2, 1, 3, 1, 2), 16 * 9, 64 * 13),
)
