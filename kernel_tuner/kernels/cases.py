"""Matrices and escape densities that checks and benchmarks use."""

from __future__ import annotations

from dataclasses import dataclass

import torch

# (N, K): gate_up, down, GDN in, attention out, head of Qwen3.8-27B; o and gate_up of Qwen3-8B
PRODUCTION = (
    (34816, 5120),
    (5120, 17408),
    (16384, 5120),
    (5120, 6144),
    (248320, 5120),
    (4096, 4096),
    (24576, 4096),
)


@dataclass(frozen=True)
class Stack:
    """The linear layers one decode step reads: `layers` times `matrices`, then `head`."""

    name: str
    blocks: tuple[tuple[int, tuple[tuple[int, int], ...]], ...]
    head: tuple[int, int]

    def matrices(self) -> list[tuple[int, int]]:
        """Every (N, K) in the order of the step."""
        order = [shape for count, shapes in self.blocks for _ in range(count) for shape in shapes]
        return [*order, self.head]


def _dense(hidden: int, attention: int, heads: int, inner: int) -> tuple[tuple[int, int], ...]:
    """Fused input projection, output projection, fused gate and up, down."""
    return ((attention, hidden), (hidden, heads), (2 * inner, hidden), (hidden, inner))


_GDN = _dense(5120, 16480, 6144, 17408)  # q, k, v, z and the two gates
_FULL = _dense(5120, 14336, 6144, 17408)  # q with its output gate, k, v

STACKS = (
    Stack("Qwen3.8-27B", ((16, _GDN + _GDN + _GDN + _FULL),), (248320, 5120)),
    Stack("Qwen3-8B", ((36, _dense(4096, 6144, 4096, 12288)),), (151936, 4096)),
    Stack("Muse-Glimmer-30B", ((52, _dense(6656, 8704, 4096, 19968)),), (202048, 6656)),
)

_FAR_EXPONENT = 20 << 7  # 2^-107: no window of real weights reaches it


def random_weight(
    rows: int, cols: int, density: float, device: str, seed: int = 0, *, full_tile: bool = False
) -> torch.Tensor:
    """BF16 `[rows, cols]`, N(0, 0.02), with a share `density` of planted escapes.

    `full_tile` turns the last row tile into nothing but escapes.
    """
    generator = torch.Generator(device=device).manual_seed(seed)
    weight = torch.empty(rows, cols, dtype=torch.bfloat16, device=device)
    for chunk in torch.split(weight, max(16, (1 << 26) // cols)):
        shape = chunk.shape
        chunk.copy_(0.02 * torch.randn(shape, generator=generator, device=device))
        bits = chunk.view(torch.int16)
        if density:
            planted = torch.rand(shape, generator=generator, device=device) < density
            bits.copy_(torch.where(planted, (bits & -32641) | _FAR_EXPONENT, bits))
    if full_tile:
        last = weight[-16:].view(torch.int16)
        last.copy_((last & -32641) | _FAR_EXPONENT)
    return weight


def random_patterns(rows: int, cols: int, device: str, seed: int = 0) -> torch.Tensor:
    """Finite BF16 values of every exponent up to 2^13, zeros and subnormals among them."""
    generator = torch.Generator(device=device).manual_seed(seed)
    bits = torch.randint(-(1 << 15), 1 << 15, (rows, cols), generator=generator, device=device)
    exponent = (bits >> 7) & 0xFF
    bits = torch.where(exponent > 140, bits & ~0x4000, bits)
    return bits.to(torch.int16).view(torch.bfloat16)
