"""All linear layers of a model's decode step, in order, as one graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from kernel_tuner.kernels.arms import Matrix, build
from kernel_tuner.kernels.cases import Stack
from kernel_tuner.kernels.timing import interleaved
from native_engine.kernels.skinny import RawWeight, W12Weight, linear

ARMS = ("cublas", "bf16", "w12", "bf16_pdl", "w12_pdl")


class StackBench:
    """Random weights of one model's shapes, a few rotating copies a shape.

    A layer alone reads several times the L2 cache, so reusing copies never serves one from it.
    """

    def __init__(self, stack: Stack, density: float = 0.0002) -> None:
        self.stack = stack
        shapes = dict.fromkeys(stack.matrices())
        self.matrices: dict[tuple[int, int], Matrix] = {
            shape: build(*shape, density, seed) for seed, shape in enumerate(shapes)
        }

    def step(self, tokens: int, arm: str) -> Callable[[int], None]:
        """One decode step's linear layers; every layer takes the next copy of its shape."""
        x = {
            cols: torch.randn(tokens, cols, device="cuda").to(torch.bfloat16)
            for cols in {shape[1] for shape in self.matrices}
        }
        out = {
            rows: torch.empty(tokens, rows, dtype=torch.bfloat16, device="cuda")
            for rows in {shape[0] for shape in self.matrices}
        }
        order = self.stack.matrices()
        copies = [i % self.matrices[shape].copies for i, shape in enumerate(order)]

        def weight_of(i: int) -> RawWeight | W12Weight:
            matrix = self.matrices[order[i]]
            return matrix.w12[copies[i]] if arm.startswith("w12") else matrix.raw[copies[i]]

        def launch(_: int) -> None:
            for i, (rows, cols) in enumerate(order):
                if arm == "cublas":
                    plain = self.matrices[rows, cols].plain[copies[i]]
                    torch.mm(x[cols], plain.t(), out=out[rows])
                    continue
                pdl = arm.endswith("pdl")
                following = weight_of(i + 1) if pdl and i + 1 < len(order) else None
                linear(x[cols], weight_of(i), out[rows], dependent=pdl, following=following)

        return launch

    def measure(self, tokens: int, repeats: int = 9) -> dict[str, Any]:
        """Microseconds a step of every arm."""
        arms = {arm: self.step(tokens, arm) for arm in ARMS}
        times = interleaved(arms, 1, repeats)
        us = {arm: round(t, 1) for arm, (t, _) in times.items()}
        weights = sum(rows * cols for rows, cols in self.stack.matrices())
        return {
            "stack": self.stack.name,
            "tokens": tokens,
            "weights": weights,
            "launches": len(self.stack.matrices()),
            "us": us,
            "spread": {arm: round(s, 4) for arm, (_, s) in times.items()},
            "x_cublas": {arm: round(us["cublas"] / t, 3) for arm, t in us.items()},
        }
