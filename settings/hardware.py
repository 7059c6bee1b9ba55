"""The one table of hardware: our names, Ray accelerator types, NVML product names, capability."""

from __future__ import annotations

from dataclasses import dataclass

from settings.errors import SettingError


@dataclass(frozen=True)
class Hardware:
    """One kind of device a setting can be pinned to.

    `peak_bytes_per_s` and `peak_flops` are datasheet figures (dense BF16): no engine can pass that
    ceiling. None for a CPU, where no datasheet binds.
    """

    name: str
    ray_accelerator: str | None
    nvml_names: tuple[str, ...]
    compute_capability: str | None
    peak_bytes_per_s: float | None
    peak_flops: float | None

    @property
    def is_gpu(self) -> bool:
        return self.ray_accelerator is not None


HARDWARE: dict[str, Hardware] = {
    h.name: h
    for h in (
        Hardware("cpu", None, (), None, None, None),
        Hardware("h100", "H100", ("NVIDIA H100 80GB HBM3",), "9.0", 3.35e12, 989e12),
        Hardware("h200", "H200", ("NVIDIA H200",), "9.0", 4.8e12, 989e12),
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
