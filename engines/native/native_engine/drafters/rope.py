"""The drafter's rotary angles: plain RoPE, or YaRN where config.json asks for it."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from native_engine.drafters.config import DrafterConfig, Yarn
from native_engine.rope import Rotary


class YarnRotary(Rotary):
    """YaRN (Peng et al., arXiv 2309.00071, sections 3.2 to 3.4): slow dimensions interpolated by
    `factor`, fast ones kept, a ramp between; cos and sin scaled by the attention factor."""

    def __init__(
        self, dims: int, theta: float, yarn: Yarn, device: torch.device, dtype: torch.dtype
    ) -> None:
        super().__init__(dims, theta, device, dtype)

        def dimension(rotations: float) -> float:
            """The dimension that turns `rotations` times over the original context."""
            turns = yarn.original / (rotations * 2 * math.pi)
            return dims * math.log(turns) / (2 * math.log(theta))

        low = max(math.floor(dimension(yarn.beta_fast)), 0)
        high = min(math.ceil(dimension(yarn.beta_slow)), dims - 1)
        index = torch.arange(dims // 2, dtype=torch.float32, device=device)
        interpolated = ((index - low) / max(high - low, 0.001)).clamp(0, 1)
        kept = self._frequencies
        self._frequencies = torch.lerp(kept, kept / yarn.factor, interpolated)
        default = 0.1 * math.log(yarn.factor) + 1.0 if yarn.factor > 1 else 1.0
        self._scale = default if yarn.attention_factor is None else yarn.attention_factor

    def at(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        cos, sin = super().at(positions)
        return cos * self._scale, sin * self._scale


def rotary(config: DrafterConfig, device: torch.device, dtype: torch.dtype) -> Rotary:
    """Angles over whole heads, as the drafter was trained (target keys copied into its config,
    such as partial_rotary_factor, do not describe it)."""
    if config.yarn is None:
        return Rotary(config.head_dim, config.rope_theta, device, dtype)
    return YarnRotary(config.head_dim, config.rope_theta, config.yarn, device, dtype)
