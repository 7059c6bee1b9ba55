"""The gated MLP with SiLU (SwiGLU, Shazeer, arXiv 2002.05202) that every target has."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from native_engine.linear import Linear
from native_engine.llama import swiglu
from native_engine.targets.source import TensorSource, stacked

Pack = Callable[[Tensor], Linear]


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
