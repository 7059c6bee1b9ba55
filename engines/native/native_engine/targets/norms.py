"""RMSNorm with a gain, a centred gain (1 + w) or none, by the fused kernel the device has."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


class RmsNorm:
    """`x / sqrt(mean(x^2) + eps) * gain` over the last dimension, `[.., d]` to `[.., d]`.

    gain: `[d]`, or None. Gains are multiplied in FP32: 1 + w has not the bits in BF16."""

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
