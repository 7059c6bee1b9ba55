"""The arms a benchmark compares on one matrix, each over rotating copies beyond the L2 cache."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeVar

import torch

from kernel_tuner.kernels.cases import random_weight
from kernel_tuner.kernels.timing import Launch
from native_engine.kernels.schedule import Launch as How
from native_engine.kernels.schedule import Schedule
from native_engine.kernels.skinny import RawWeight, W12Weight, linear, raw_weight, w12_weight
from native_engine.w12.pack_torch import pack_tensor

Form = TypeVar("Form", RawWeight, W12Weight)
_BEYOND_L2 = 160_000_000  # bytes of all copies together, more than twice 60 MB
_MIN_COPIES = 4


@dataclass(frozen=True)
class Matrix:
    """Rotating copies of one random matrix in the three forms."""

    rows: int
    cols: int
    plain: list[torch.Tensor]
    raw: list[RawWeight]
    w12: list[W12Weight]
    escape_rate: float

    @property
    def copies(self) -> int:
        return len(self.plain)

    def bytes_of(self, arm: str) -> int:
        """Weight bytes one launch of an arm reads."""
        return self.w12[0].nbytes if arm.startswith("w12") else 2 * self.rows * self.cols


def build(
    rows: int, cols: int, density: float, seed: int = 0, schedule: Schedule | None = None
) -> Matrix:
    """Pack once, copy until the copies exceed twice the cache."""
    weight = random_weight(rows, cols, density, "cuda", seed)
    packed = pack_tensor(weight)
    rate = packed.entries.numel() / weight.numel()
    first_w12 = w12_weight(packed, "cuda", schedule)
    first_raw = raw_weight(weight, schedule)
    copies = max(_MIN_COPIES, -(-_BEYOND_L2 // first_w12.nbytes))
    return Matrix(
        rows,
        cols,
        [weight] + [weight.clone() for _ in range(copies - 1)],
        [first_raw] + [_copy(first_raw) for _ in range(copies - 1)],
        [first_w12] + [_copy(first_w12) for _ in range(copies - 1)],
        rate,
    )


def _copy(weight: Form) -> Form:
    return replace(weight, staged=replace(weight.staged, data=weight.staged.data.clone()))


def launches_for(matrix: Matrix, target_us: float = 2500) -> int:
    """Launches a graph, a multiple of the copies, so that one replay takes about `target_us`."""
    estimate = matrix.bytes_of("cublas") / 4.0e6 + 2
    return matrix.copies * max(1, round(target_us / estimate / matrix.copies))


def arms_of(matrix: Matrix, tokens: int, how: How | None = None) -> dict[str, Launch]:
    """cublas = torch.mm(out=); bf16 and w12 are ours; _pdl chains launches dependently,
    each knowing the weight of the next."""
    x = torch.randn(tokens, matrix.cols, device="cuda").to(torch.bfloat16)
    out = torch.empty(tokens, matrix.rows, dtype=torch.bfloat16, device="cuda")
    transposed = [weight.t() for weight in matrix.plain]
    n = matrix.copies

    def ours(weights: list[RawWeight] | list[W12Weight], dependent: bool) -> Launch:
        def launch(i: int) -> torch.Tensor:
            following = weights[(i + 1) % n] if dependent else None
            return linear(
                x, weights[i % n], out, dependent=dependent, following=following, launch=how
            )

        return launch

    return {
        "cublas": lambda i: torch.mm(x, transposed[i % n], out=out),
        "bf16": ours(matrix.raw, False),
        "w12": ours(matrix.w12, False),
        "bf16_pdl": ours(matrix.raw, True),
        "w12_pdl": ours(matrix.w12, True),
    }
