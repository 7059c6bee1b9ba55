"""What all decoder layers are made of, and how it is taken from a checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
import torch.nn.functional as F
from torch import Tensor

from native_engine.linear import Linear
from native_engine.llama import swiglu
from native_engine.targets.source import TensorSource, stacked

Pack = Callable[[Tensor], Linear]


class RmsNorm:
    """`x / sqrt(mean(x^2) + eps) * gain` over the last dimension, `[.., d]` to `[.., d]`, by the
    fused kernel the device has.

    gain: `[d]`, or None; centred: it is 1 + w. Gains are multiplied in FP32: 1 + w has not the bits
    in BF16."""

    def __init__(self, gain: Tensor | None, eps: float, *, centred: bool = False) -> None:
        gain = gain if gain is None else gain.float() + float(centred)
        self.eps = eps
        self.gain = gain
        self._doubled = gain if gain is None else gain.repeat(2)

    def __call__(self, x: Tensor) -> Tensor:
        d = x.shape[-1]
        if x.device.type != "cpu":
            return F.rms_norm(x.float(), (d,), self.gain, self.eps).to(x.dtype)
        # F.rms_norm is a chain of operators on CPU. [x, -x] has mean 0 and variance mean(x^2), so
        # the first half of its LayerNorm, one fused kernel, is RMSNorm of x.
        paired = torch.cat((x, x.neg()), dim=-1)
        return F.layer_norm(paired, (2 * d,), self._doubled, None, self.eps)[..., :d]


class Reader:
    """Takes modules from a source, matrices ready to multiply by `pack`."""

    def __init__(
        self, source: TensorSource, pack: Pack, eps: float, *, centred: bool = False
    ) -> None:
        self.source, self.pack = source, pack
        self._eps, self._centred = eps, centred

    def norm(self, name: str, width: int, eps: float | None = None) -> RmsNorm:
        gain = self.source.take(f"{name}.weight", width)
        return RmsNorm(gain, self._eps if eps is None else eps, centred=self._centred)

    def linear(self, at: str, outs: Mapping[str, int], width: int) -> Linear:
        """Modules `outs` of `at`, each with its output width, that read the same rows: one product,
        results side by side."""
        return self.pack(stacked(self.source, at, outs, width))

    def mlp(self, at: str, hidden: int, inner: int) -> GatedMlp:
        gate_up = self.linear(at, {"gate_proj": inner, "up_proj": inner}, hidden)
        return GatedMlp(gate_up, self.linear(at, {"down_proj": hidden}, inner))


class GatedMlp:
    """The gated MLP with SiLU (SwiGLU, Shazeer, arXiv 2002.05202) that every target has:
    `down(silu(gate(x)) * up(x))`, `[rows, hidden]` to `[rows, hidden]`."""

    def __init__(self, gate_up: Linear, down: Linear) -> None:
        self.gate_up, self.down = gate_up, down

    def __call__(self, x: Tensor) -> Tensor:
        return self.down(swiglu(self.gate_up(x)))

    def add(self, x: Tensor, residual: Tensor) -> Tensor:
        """`mlp(x) + residual`."""
        return self.down.add(swiglu(self.gate_up(x)), residual)
