"""The gated MLP with SiLU (SwiGLU, Shazeer, arXiv 2002.05202) that every target has."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from native_engine.linear import Linear
from native_engine.llama import swiglu
from native_engine.targets.source import TensorSource

Pack = Callable[[Tensor], Linear]


def stacked(source: TensorSource, at: str, outs: dict[str, int], width: int) -> Tensor:
    """Matrices `{at}.{name}.weight` `[out, width]` stacked, so that one product serves."""
    parts = [source.take(f"{at}.{name}.weight", out, width) for name, out in outs.items()]
    return torch.cat(parts)


class GatedMlp:
    """`down(silu(gate(x)) * up(x))`, `[rows, hidden]` to `[rows, hidden]`."""

    def __init__(self, source: TensorSource, at: str, hidden: int, inner: int, pack: Pack) -> None:
        outs = {"gate_proj": inner, "up_proj": inner}
        self._gate_up = pack(stacked(source, at, outs, hidden))
        self._down = pack(source.take(f"{at}.down_proj.weight", hidden, inner))

    def __call__(self, x: Tensor) -> Tensor:
        return self._down(swiglu(self._gate_up(x)))

    def add(self, x: Tensor, residual: Tensor) -> Tensor:
        """`mlp(x) + residual`."""
        return self._down.add(swiglu(self._gate_up(x)), residual)
