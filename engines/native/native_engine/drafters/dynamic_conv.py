"""Two-tap grouped dynamic causal convolutions around each sublayer (DFlash2)."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from native_engine.drafters.config import DrafterConfig
from native_engine.linear import Linear
from native_engine.targets.source import TensorSource


class DynamicConv:
    """`Conv(x)_t = sum_o (base[o] + dyn[t, o, group]) * x_{t-o}` within a block: rows before its
    start read as zero. One projection of the normed input gives the coefficients of both the
    convolution before the sublayer and the one after it."""

    def __init__(self, base: Tensor, projection: Linear, group: int) -> None:
        self._base = base.view(*base.shape[:-1], -1, group)
        self._projection = projection

    @classmethod
    def load(
        cls, config: DrafterConfig, source: TensorSource, at: str, pack: Callable[[Tensor], Linear]
    ) -> DynamicConv:
        assert config.conv is not None
        d, taps, group = config.hidden_size, config.conv.taps, config.conv.group
        base = source.take(f"{at}.base_kernel", 2, taps, d)
        projection = source.take(f"{at}.kernel_projection.weight", 2 * taps * (d // group), d)
        return cls(base, pack(projection), group)

    def kernels(self, normed: Tensor) -> tuple[Tensor, Tensor]:
        """Coefficients before and after the sublayer, `[rows, taps, hidden]` each, from its normed
        input `[rows, hidden]`."""
        halves, taps, groups, _ = self._base.shape
        dynamic = self._projection(normed).view(-1, halves, taps, groups, 1)
        before, after = (self._base + dynamic).flatten(-2).unbind(1)
        return before, after

    @staticmethod
    def apply(x: Tensor, kernel: Tensor, block: int) -> Tensor:
        """Convolve `[rows, hidden]`, blocks of `block` rows one after the other."""
        rows = x.view(-1, block, x.shape[-1])
        coefficients = kernel.view(-1, block, *kernel.shape[1:])
        out = coefficients[:, :, 0] * rows
        for o in range(1, kernel.shape[1]):
            out[:, o:] += coefficients[:, o:, o] * rows[:, : block - o]
        return out.view_as(x)


def convolved(
    conv: DynamicConv | None,
    normed: Tensor,
    block: int,
    sublayer: Callable[[Tensor], Tensor],
) -> Tensor:
    """A sublayer between its two convolutions, or alone where the drafter has none."""
    if conv is None:
        return sublayer(normed)
    before, after = conv.kernels(normed)
    return conv.apply(sublayer(conv.apply(normed, before, block)), after, block)
