"""What `specfarm certify` is going to do and about how long it takes, before anything runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from engines.certificate import is_sealed, load_certificate
from farm.promotion.checks import recorded_prompts
from farm.search.certify_prompts import LAUNCHES
from farm.search.certify_target import CertifyOrder

# Launching, warming and stopping the engines of one launch, and forcing, in seconds (measured on
# the embedded default; docs/benchmarks/certify.md).
_LAUNCH_S, _FORCING_S = 15.0, 90.0


@dataclass(frozen=True)
class Plan:
    """`lacks`: what this certificate's version does not record, so that it cannot be checked."""

    folder: str
    status: str
    prompts: str
    placebo_launches: int
    timed_launches: int
    seconds: float
    own_prompts: int
    about_s: float
    lacks: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def text(self) -> str:
        lines = [
            f"certify {self.folder} (status {self.status}), about {self.about_s / 60:.0f} min:",
            "  1. seal, file hashes, lock, patch series, rebuilt tree, seed, prompts, weights",
            f"  2. stock against itself: {self.placebo_launches} launches",
            f"  3. final against stock on {self.prompts} prompts: {self.timed_launches} launches "
            f"of {self.seconds:.0f} s, AR beside them in the first",
            f"  4. final's answers to the certificate's {self.own_prompts} prompts, untimed",
            "  5. every token forced on stock; the FP32 twin's tokens exactly",
        ]
        return "\n".join([*lines, *(f"  not recorded here: {name}" for name in self.lacks)])


def describe(order: CertifyOrder) -> Plan:
    """Reads the certificate only.

    Raises:
        EngineError: it cannot be read.
    """
    data, _ = load_certificate(order.target.folder)
    measurement = order.target.setting.measurement
    placebo, timed = measurement.launches_aa, LAUNCHES
    heldout = data.get("heldout")
    lacks = {
        "certificate_sha256": is_sealed(data),
        "weights": "weights" in data,
        "heldout.draws": isinstance(heldout, dict) and "draws" in heldout,
    }
    seconds = order.timed_seconds
    return Plan(
        folder=str(order.target.folder),
        status=data["status"],
        prompts="fresh" if order.fresh else "the certificate's",
        placebo_launches=placebo,
        timed_launches=timed,
        seconds=seconds,
        own_prompts=_own(data),
        about_s=placebo * (seconds / 2 + _LAUNCH_S)
        + timed * (seconds + _LAUNCH_S)
        + seconds / 2
        + _FORCING_S,
        lacks=tuple(name for name, there in lacks.items() if not there),
    )


def _own(certificate: Mapping[str, Any]) -> int:
    """Distinct prompts of the certificate; 0 where it is too damaged to say."""
    try:
        return len({ids for draw in recorded_prompts(certificate) for _, ids in draw})
    except (KeyError, TypeError, ValueError, AttributeError):
        return 0
