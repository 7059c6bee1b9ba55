"""The torch packer writes the bytes of the numpy packer."""

import numpy as np
import pytest
import torch

from native_engine.kernels.skinny import raw_blocks, raw_order
from native_engine.w12 import pack_matrix
from native_engine.w12.pack_torch import pack_tensor


def as_tensor(bits: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(bits.view(np.int16)).view(torch.bfloat16)


@pytest.mark.parametrize("base", [None, 0, 108, 240])
def test_same_bytes(base: int | None) -> None:
    rng = np.random.default_rng(1)
    bits = rng.integers(0, 1 << 16, (48, 192)).astype(np.uint16)
    bits[:32] = (rng.normal(0, 0.02, (32, 192)).astype(np.float32).view(np.uint32) >> 16).astype(
        np.uint16
    )
    packed, tensors = pack_matrix(bits, base), pack_tensor(as_tensor(bits), base)
    assert tensors.base == packed.base
    for name in ("blocks", "escape_meta", "tile_start", "entries"):
        expected = getattr(packed, name).reshape(-1)
        found = getattr(tensors, name).numpy().view(expected.dtype)
        assert np.array_equal(found, expected), name


def test_raw_order_agrees() -> None:
    bits = np.random.default_rng(2).integers(0, 1 << 16, (32, 128)).astype(np.uint16)
    assert np.array_equal(raw_order(as_tensor(bits)).numpy(), raw_blocks(bits))


def test_tails_are_refused() -> None:
    with pytest.raises(ValueError, match="16 n, 64 k"):
        pack_tensor(torch.zeros(17, 64, dtype=torch.bfloat16))
