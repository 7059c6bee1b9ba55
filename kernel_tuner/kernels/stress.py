"""Many launches on a few thread blocks whose data stay in the cache: where a race would show.

A ring slot overwritten under a pending load was once seen only on grids of 3 to 7 blocks, never at
production sizes, so every output of every launch is compared bit for bit.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from kernel_tuner.kernels.cases import random_weight
from kernel_tuner.kernels.report import CheckLine, line
from native_engine.kernels.schedule import Schedule
from native_engine.kernels.skinny import linear, raw_weight, w12_weight
from native_engine.w12.pack_torch import pack_tensor

GRIDS = (
    (Schedule(3, 1, 16, 1, 2), 16 * 48, 4096),
    (Schedule(7, 1, 2, 8, 1), 16 * 14, 8192),
    (Schedule(5, 1, 17, 1, 1), 16 * 85, 2048),
    (Schedule(3, 2, 5, 3, 1), 16 * 15, 6144),
    (Schedule(4, 1, 2, 4, 2), 16 * 8, 8192),
)
_PER_GRAPH = 40


def check_stress(launches: int = 36_000) -> Iterator[CheckLine]:
    """`launches` in all, over grids, formats, numbers of tokens and both ways to launch."""
    variants = [(m, dependent) for m in (1, 9, 24) for dependent in (False, True)]
    replays = max(1, launches // (len(GRIDS) * len(variants) * 2 * _PER_GRAPH))
    for schedule, rows, cols in GRIDS:
        weight = random_weight(rows, cols, 0.002, "cuda", 3)
        raw = raw_weight(weight, schedule)
        w12 = w12_weight(pack_tensor(weight), "cuda", schedule)
        bad = done = 0
        for m, dependent in variants:
            x = torch.randn(m, cols, device="cuda").to(torch.bfloat16)
            expected = (x.double() @ weight.double().t()).float()
            reference = linear(x, raw, torch.empty_like(expected))
            close = float((reference - expected).norm() / expected.norm())
            bad += int(close > 3e-5)
            outs = torch.empty(_PER_GRAPH, m, rows, device="cuda")
            for matrix in (raw, w12):
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graph):
                    for out in outs:
                        following = matrix if dependent else None
                        linear(x, matrix, out, dependent=dependent, following=following)
                wrong = torch.zeros((), dtype=torch.int64, device="cuda")
                for _ in range(replays):
                    outs.fill_(float("nan"))
                    graph.replay()
                    differs = outs.view(torch.int32) != reference.view(torch.int32)
                    wrong += differs.flatten(1).any(dim=1).sum()
                bad += int(wrong)
                done += replays * _PER_GRAPH
        detail = f"{bad} bad of {done} launches"
        yield line(
            "w12_skinny", f"stress {schedule.groups * schedule.cluster} blocks", bad == 0, detail
        )
