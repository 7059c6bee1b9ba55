"""Linear backends on the skinny kernels: BF16 of our own, and W12. They need a CUDA device."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from native_engine.kernels.schedule import COLS, MAX_TOKENS, ROWS
from native_engine.kernels.skinny import RawWeight, W12Weight, linear, raw_weight, w12_weight
from native_engine.w12.decode import decode_matrix
from native_engine.w12.pack import pack_matrix
from native_engine.w12.pack_torch import pack_tensor


class _Skinny:
    """Any number of rows, `MAX_TOKENS` at a time: the sum of a row is the same in any batch."""

    def __init__(self, weight: RawWeight | W12Weight) -> None:
        self.weight = weight

    def __call__(self, x: Tensor) -> Tensor:
        out = torch.empty(x.shape[0], self.weight.rows, dtype=x.dtype, device=x.device)
        for rows, result in zip(
            torch.split(x, MAX_TOKENS), torch.split(out, MAX_TOKENS), strict=True
        ):
            linear(rows, self.weight, result)
        return out

    def add(self, x: Tensor, residual: Tensor) -> Tensor:
        return self(x).add_(residual)


class _Decoded:
    """W12 where there is no kernel for it: packed, decoded, multiplied as BF16 or FP32."""

    def __init__(self, weight: Tensor) -> None:
        self.weight = weight

    def __call__(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight)

    def add(self, x: Tensor, residual: Tensor) -> Tensor:
        return self(x).add_(residual)


def _fits(weight: Tensor) -> bool:
    rows, cols = weight.shape
    good = rows % ROWS == 0 and cols % COLS == 0
    return weight.is_cuda and weight.dtype == torch.bfloat16 and good


def skinny_linear(weight: Tensor) -> _Skinny | _Decoded:
    """Our BF16 kernel; F.linear for a matrix it cannot take."""
    return _Skinny(raw_weight(weight)) if _fits(weight) else _Decoded(weight)


def w12_linear(weight: Tensor) -> _Skinny | _Decoded:
    """W12 on a GPU. On the CPU a BF16 weight goes through the packer and back, bit for bit."""
    if _fits(weight):
        return _Skinny(w12_weight(pack_tensor(weight), weight.device))
    if weight.dtype != torch.bfloat16:
        return _Decoded(weight)
    bits = weight.detach().cpu().contiguous().view(torch.int16).numpy().view("uint16")
    decoded = torch.from_numpy(decode_matrix(pack_matrix(bits)).view("int16"))
    return _Decoded(decoded.view(torch.bfloat16).to(weight.device))
