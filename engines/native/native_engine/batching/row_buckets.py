"""Packed oneDNN products for any number of rows without a kernel of its own for each.

oneDNN builds one for every row count it meets (0.7 MB and 3 ms each, measured on a Xeon with AMX),
and batches meet hundreds: up to 512 rows are rounded up to one of 68 counts, by a fifth at most."""

from __future__ import annotations

from torch import Tensor

from native_engine.linear import PackedLinear


def bucket(rows: int) -> int:
    """The row count computed for `rows`: themselves up to 16, then in steps of 4, 8, 16."""
    step = 1 if rows <= 16 else 4 if rows <= 64 else 8 if rows <= 256 else 16
    return -(-rows // step) * step


class BucketedLinear:
    """`PackedLinear` on rows padded with zeros."""

    def __init__(self, weight: Tensor) -> None:
        self._inner = PackedLinear(weight)

    def __call__(self, x: Tensor) -> Tensor:
        return self._inner(_padded(x))[: len(x)]

    def add(self, x: Tensor, residual: Tensor) -> Tensor:
        return self._inner.add(_padded(x), _padded(residual))[: len(x)]


def _padded(x: Tensor) -> Tensor:
    rows = bucket(len(x))
    if rows == len(x):
        return x
    wide = x.new_zeros(rows, x.shape[1])
    wide[: len(x)] = x
    return wide
