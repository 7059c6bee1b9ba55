"""Linear backends: how a `[out, in]` weight is kept and multiplied. Add one: a class, a line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from native_engine.tables import unknown_name


class Linear(Protocol):
    """A matrix ready to multiply. `x` is `[rows, in]`; results are `[rows, out]` of x's dtype."""

    def __call__(self, x: Tensor) -> Tensor: ...

    def add(self, x: Tensor, residual: Tensor) -> Tensor:
        """`x @ W.T + residual`; neither argument is changed."""


class PlainLinear:
    """F.linear on the weight as loaded."""

    def __init__(self, weight: Tensor) -> None:
        self.weight = weight

    def __call__(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight)

    def add(self, x: Tensor, residual: Tensor) -> Tensor:
        return F.linear(x, self.weight).add_(residual)


class PackedLinear:
    """oneDNN on a weight re-ordered once; the residual is added in the same kernel, in FP32."""

    def __init__(self, weight: Tensor) -> None:
        self.weight = torch.ops.mkldnn._reorder_linear_weight(weight, None)
        self._linear = torch.ops.mkldnn._linear_pointwise.default
        self._binary = torch.ops.mkldnn._linear_pointwise.binary

    def __call__(self, x: Tensor) -> Tensor:
        y: Tensor = self._linear(x, self.weight, None, "none", [], "")
        return y

    def add(self, x: Tensor, residual: Tensor) -> Tensor:
        y: Tensor = self._binary(x, residual, self.weight, None, "add")
        return y


def _skinny(weight: Tensor) -> Linear:
    """Our BF16 CUDA kernel for few rows (plain where it cannot run)."""
    from native_engine.kernels.linear import skinny_linear

    return skinny_linear(weight)


def _w12(weight: Tensor) -> Linear:
    """Lossless 12-bit weights, decoded in the CUDA kernel."""
    from native_engine.kernels.linear import w12_linear

    return w12_linear(weight)


class BucketedLinear:
    """`PackedLinear` for batches: rows padded with zeros up to one of a few row counts.

    oneDNN builds a kernel for every row count it meets (0.7 MB and 3 ms each, measured on a Xeon
    with AMX), and batches meet hundreds: up to 512 rows are rounded up to one of 68 counts, by a
    fifth at most."""

    def __init__(self, weight: Tensor) -> None:
        self._inner = PackedLinear(weight)

    def __call__(self, x: Tensor) -> Tensor:
        return self._inner(_padded(x))[: len(x)]

    def add(self, x: Tensor, residual: Tensor) -> Tensor:
        return self._inner.add(_padded(x), _padded(residual))[: len(x)]


def bucket(rows: int) -> int:
    """The row count computed for `rows`: themselves up to 16, then in steps of 4, 8, 16."""
    step = 1 if rows <= 16 else 4 if rows <= 64 else 8 if rows <= 256 else 16
    return -(-rows // step) * step


def _padded(x: Tensor) -> Tensor:
    rows = bucket(len(x))
    return x if rows == len(x) else F.pad(x, (0, 0, 0, rows - len(x)))


LINEAR_BACKENDS: dict[str, Callable[[Tensor], Linear]] = {
    "plain": PlainLinear,
    "packed": PackedLinear,
    "bucketed": BucketedLinear,
    "skinny": _skinny,
    "w12": _w12,
}


def linear_backend(name: str) -> Callable[[Tensor], Linear]:
    """Backend by its name in engine.toml; ConfigError names the nearest."""
    if name not in LINEAR_BACKENDS:
        raise unknown_name("engine.toml [linear]", name, LINEAR_BACKENDS)
    return LINEAR_BACKENDS[name]
