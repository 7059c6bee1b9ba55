"""Block-FP8 weights: e4m3 with one scale per 128x128 block, kept as FP8 in memory.

A weight is dequantised (e4m3 times `weight_scale_inv`, exact in FP32) when it multiplies. What
happens to activations is the checkpoint's `activation_scheme`, as stock engines serve it:
"dynamic" rounds each row to e4m3 in groups of 128 with scale amax / 448 (transformers'
finegrained_fp8 on a GPU, SGLang); "none" keeps them (what transformers does on a CPU). Both sum
in FP32, so the only rounding beside the format's own is that of the result to the model's dtype."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from native_engine.targets.hf_config import HfConfig
from native_engine.targets.source import TensorSource

BLOCK = 128
E4M3 = torch.float8_e4m3fn
E4M3_MAX = 448.0
SMALLEST_AMAX = 1e-10


@dataclass(frozen=True)
class Fp8Format:
    """`quantization_config` of a block-FP8 checkpoint. kept: module names, prefixes, suffixes or
    patterns of modules that stay in the model's dtype (`modules_to_not_convert`)."""

    kept: tuple[str, ...]
    dynamic_activations: bool

    @classmethod
    def from_config(cls, raw: Mapping[str, Any]) -> Fp8Format | None:
        """None without a `quantization_config`; ConfigError for a format other than this one."""
        if not raw.get("quantization_config"):
            return None
        form = HfConfig(raw).section("quantization_config")
        form.require(fmt="e4m3")
        for key, value in (("quant_method", "fp8"), ("weight_block_size", [BLOCK, BLOCK])):
            if form.raw.get(key) != value:
                raise form.error(key, f"{value!r} is needed")
        scheme = form.raw.get("activation_scheme", "dynamic")
        if scheme not in ("dynamic", "none"):
            raise form.error("activation_scheme", "known: 'dynamic', 'none'")
        return cls(tuple(form.raw.get("modules_to_not_convert") or ()), scheme == "dynamic")

    def converts(self, module: str) -> bool:
        """Whether `module` (its name in the checkpoint) is FP8: transformers' matching rule, a
        pattern from the start up to a module boundary, or a suffix."""
        boundary = r"(?:(?<=\.)|(?=\.|$))"
        return not any(
            re.match(f"(?:{name}){boundary}", module) or module.endswith(name) for name in self.kept
        )


def dequantise(weight: Tensor, scale: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """e4m3 `[out, in]` and scales `[ceil(out / 128), ceil(in / 128)]` to `[out, in]`, the product
    rounded once to `dtype` (FP32 holds it exactly for a bf16 scale)."""
    out, width = weight.shape
    by_row = scale.float().repeat_interleave(BLOCK, 0)[:out]
    wide = F.pad(weight.float(), (0, -width % BLOCK))
    product = torch.unflatten(wide, 1, (-1, BLOCK)).mul_(by_row.unsqueeze(-1))
    return product.flatten(1)[:, :width].to(dtype)


def round_activations(x: Tensor) -> Tensor:
    """`[rows, in]` rounded to e4m3 in groups of 128 per row, as FP32 values."""
    width = x.shape[1]
    groups = torch.unflatten(F.pad(x.float(), (0, -width % BLOCK)), 1, (-1, BLOCK))
    scale = groups.abs().amax(-1, keepdim=True).clamp(min=SMALLEST_AMAX) / E4M3_MAX
    rounded = (groups / scale).clamp(-E4M3_MAX, E4M3_MAX).to(E4M3).float() * scale
    return rounded.flatten(1)[:, :width]


class Fp8Linear:
    """One or more FP8 matrices that read the same rows; results side by side (`linear.Linear`)."""

    def __init__(self, parts: Sequence[tuple[Tensor, Tensor]], dynamic_activations: bool) -> None:
        self.parts = list(parts)
        self._dynamic = dynamic_activations

    def __call__(self, x: Tensor) -> Tensor:
        rows = round_activations(x) if self._dynamic else x.float()
        out = [F.linear(rows, dequantise(weight, scale)) for weight, scale in self.parts]
        return torch.cat(out, dim=-1).to(x.dtype)

    def add(self, x: Tensor, residual: Tensor) -> Tensor:
        return self(x).add_(residual)


def take_fp8(source: TensorSource, module: str, out: int, width: int) -> tuple[Tensor, Tensor]:
    """`module.weight` as e4m3 and `module.weight_scale_inv` (FP32 holds bf16 and FP32 scales)."""
    blocks = -(-out // BLOCK), -(-width // BLOCK)
    return (
        source.take(f"{module}.weight", out, width, dtype=E4M3),
        source.take(f"{module}.weight_scale_inv", *blocks, dtype=torch.float32),
    )
