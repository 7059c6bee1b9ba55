"""Two-tap grouped dynamic causal convolutions around each sublayer (DFlash2)."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from native_engine.drafters.config import DrafterConfig
from native_engine.targets.modules import Pack
from native_engine.targets.source import TensorSource


class DynamicConv:
    """`Conv(x)_t = sum_o (base[o] + dyn[t, o, group]) * x_{t-o}` within a block: rows before its
    start read as zero. One projection of the normed input gives the coefficients of both the
    convolution before the sublayer and the one after it."""

    def __init__(self, config: DrafterConfig, source: TensorSource, at: str, pack: Pack) -> None:
        assert config.conv is not None
        d, taps, self._group = config.hidden_size, config.conv.taps, config.conv.group
        self._base = source.take(f"{at}.base_kernel", 2, taps, d)
        rows = 2 * taps * (d // self._group)
        self._projection = pack(source.take(f"{at}.kernel_projection.weight", rows, d))

    def kernels(self, normed: Tensor) -> tuple[Tensor, Tensor]:
        """Coefficients before and after the sublayer, `[rows, taps, hidden]` each, from its normed
        input `[rows, hidden]`."""
        dynamic = self._projection(normed).unsqueeze(-1).expand(-1, -1, self._group)
        # Spread first: an addition that spreads as it goes takes three times as long on CPU.
        kernels = dynamic.reshape(-1, *self._base.shape).add_(self._base)
        before, after = kernels.unbind(1)
        return before, after

    @staticmethod
    def apply(x: Tensor, kernel: Tensor, block: int, residual: Tensor | None = None) -> Tensor:
        """Convolve `[rows, hidden]`, blocks of `block` rows one after the other, and add
        `residual`."""
        now = kernel[:, 0]
        out = now * x if residual is None else torch.addcmul(residual, now, x)
        shape = (-1, block, x.shape[-1])
        blocks, rows = out.view(shape), x.view(shape)
        for o in range(1, kernel.shape[1]):
            before = kernel[:, o].view(shape)
            blocks[:, o:].addcmul_(before[:, o:], rows[:, : block - o])
        return out


def convolved(
    conv: DynamicConv | None,
    normed: Tensor,
    residual: Tensor,
    block: int,
    sublayer: Callable[[Tensor], Tensor],
) -> Tensor:
    """`residual` plus a sublayer between its two convolutions, or alone where the drafter has
    none."""
    if conv is None:
        return residual + sublayer(normed)
    before, after = conv.kernels(normed)
    return conv.apply(sublayer(conv.apply(normed, before, block)), after, block, residual)
