"""Rounded row counts change no row's result, and are few."""

from __future__ import annotations

import pytest
import torch

from native_engine.linear import BucketedLinear, PackedLinear, bucket, linear_backend


def test_buckets_are_few_close_and_never_smaller() -> None:
    sizes = [bucket(rows) for rows in range(1, 513)]
    assert all(size >= rows for rows, size in enumerate(sizes, 1))
    assert all(size <= rows * 1.18 for rows, size in enumerate(sizes, 1))
    assert len(set(sizes)) == 68 and sizes == sorted(sizes)
    assert bucket(513) == 528


@pytest.mark.parametrize("rows", [1, 16, 17, 63, 65])
def test_products_are_the_packed_ones(rows: int) -> None:
    generator = torch.Generator().manual_seed(rows)
    weight, x = torch.randn(24, 40, generator=generator), torch.randn(rows, 40, generator=generator)
    residual = torch.randn(rows, 24, generator=generator)
    found, packed = linear_backend("bucketed")(weight.bfloat16()), PackedLinear(weight.bfloat16())
    assert isinstance(found, BucketedLinear)
    x, residual = x.bfloat16(), residual.bfloat16()
    torch.testing.assert_close(found(x), packed(x), rtol=1e-2, atol=1e-2)
    torch.testing.assert_close(
        found.add(x, residual), packed.add(x, residual), rtol=1e-2, atol=1e-2
    )
    assert found(x).shape == (rows, 24) and found(x).is_contiguous()
