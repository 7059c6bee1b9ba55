"""The kernels of the native engine and where each may be used."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Kernel:
    """A kernel family: one name, one oracle, several architectures."""

    name: str
    summary: str
    oracle: str
    architectures: tuple[str, ...] = ("sm_90a", "sm_120a")


KERNELS = (
    Kernel(
        "bf16_skinny",
        "BF16 linear, M <= 64: weights streamed once through a ring, mma.sync, FP32 sums",
        "FP64 product of the same operands",
    ),
    Kernel(
        "w12_skinny",
        "the same kernel on lossless 12-bit weights decoded in registers",
        "bf16_skinny, bit for bit",
    ),
    Kernel(
        "bf16_skinny_pdl",
        "bf16_skinny launched dependently: asks for its weights before its predecessor ends",
        "bf16_skinny, bit for bit",
    ),
    Kernel(
        "w12_skinny_pdl",
        "w12_skinny launched dependently",
        "bf16_skinny, bit for bit",
    ),
    Kernel(
        "w12_cpu",
        "W12 decoded block by block on the CPU: the oracle of the format",
        "the BF16 bits, all 65,536 patterns",
        ("cpu",),
    ),
)


def kernel(name: str) -> Kernel:
    """The kernel of that name; the error names all of them."""
    for entry in KERNELS:
        if entry.name == name:
            return entry
    raise KeyError(f"no kernel {name!r}: there are {', '.join(k.name for k in KERNELS)}")
