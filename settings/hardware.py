"""The one table of hardware: our names, Ray accelerator types, NVML product names, capability."""

from __future__ import annotations

from dataclasses import dataclass

from settings.errors import SettingError


@dataclass(frozen=True)
class Hardware:
    """One kind of device a setting can be pinned to.

    `peak_bytes_per_s` and `peak_flops` are datasheet figures (dense BF16): no engine can pass that
    ceiling. `cache_bytes` is the last-level cache: what lies there need not come from memory. None
    for a CPU, where no datasheet binds (see `ceiling`).
    """

    name: str
    ray_accelerator: str | None
    nvml_names: tuple[str, ...]
    compute_capability: str | None
    peak_bytes_per_s: float | None
    peak_flops: float | None
    cache_bytes: float | None = None

    @property
    def is_gpu(self) -> bool:
        return self.ray_accelerator is not None


@dataclass(frozen=True)
class Ceiling:
    """What a device can do at most: bytes/s from memory, FLOP/s, bytes that stay on the chip."""

    bytes_per_s: float
    flops: float
    cache_bytes: float


# One CPU thread. Not a datasheet: a generous constant that no core reaches. 200 GB/s is beyond what
# one core loads from its last-level cache or memory; 1e13 FLOP/s is beyond a matrix unit's 2,048
# BF16 operations a cycle at 4 GHz. An engine takes tens of times longer than these allow.
CPU_THREAD = Ceiling(2e11, 1e13, 0.0)

HARDWARE: dict[str, Hardware] = {
    h.name: h
    for h in (
        Hardware("cpu", None, (), None, None, None),
        Hardware("h100", "H100", ("NVIDIA H100 80GB HBM3",), "9.0", 3.35e12, 989e12, 50e6),
        Hardware("h200", "H200", ("NVIDIA H200",), "9.0", 4.8e12, 989e12, 50e6),
        Hardware(
            "rtxpro6000",
            "RTX-PRO-6000",
            (
                "NVIDIA RTX PRO 6000 Blackwell Workstation Edition",
                "NVIDIA RTX PRO 6000 Blackwell Server Edition",
                "NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition",
            ),
            "12.0",
            1.79e12,
            503e12,
            128e6,
        ),
    )
}


def hardware(name: str) -> Hardware:
    """The table's row for `name`.

    Raises:
        SettingError: no such row; the message lists the known names.
    """
    try:
        return HARDWARE[name]
    except KeyError:
        raise SettingError(
            f"hardware.gpu = {name!r} is not known", f"Use one of: {', '.join(HARDWARE)}"
        ) from None


def ceiling(name: str, threads: int = 1) -> Ceiling:
    """The ceiling of one whole device, or of `threads` threads of a CPU.

    Raises:
        SettingError: as `hardware`.
    """
    device = hardware(name)
    if device.peak_bytes_per_s is None or device.peak_flops is None:
        return Ceiling(CPU_THREAD.bytes_per_s * threads, CPU_THREAD.flops * threads, 0.0)
    return Ceiling(device.peak_bytes_per_s, device.peak_flops, device.cache_bytes or 0.0)
