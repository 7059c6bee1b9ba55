"""How a parallel drafter is used: the knobs of its engine.toml table."""

from __future__ import annotations

from dataclasses import dataclass, field

from native_engine.config import EngineConfig
from native_engine.errors import ConfigError
from native_engine.tables import read_table

PARALLEL_DRAFTERS = ("dflash", "dspark")
"""Their names in engine.toml; the checkpoint says which of DFlash and DFlash2 it is."""
SCHEDULES = ("none", "threshold", "throughput")


@dataclass(frozen=True)
class DrafterOptions:
    """draft_tokens: at most this many a block; 0 means all it can. schedule (DSpark): which drafts
    are verified: all, those before the first confidence below `threshold`, or the ones that pay by
    measured `steps_per_second` at `batch_tokens`. normed_embeddings: the block's embeddings get a
    weightless RMS norm, as Muse's own input does (whether its drafters expect that is open)."""

    draft_tokens: int = 0
    schedule: str = "none"
    threshold: float = 0.5
    batch_tokens: list[int] = field(default_factory=list)
    steps_per_second: list[float] = field(default_factory=list)
    normed_embeddings: bool = False

    def __post_init__(self) -> None:
        if self.draft_tokens < 0:
            raise ConfigError(f"drafter draft_tokens={self.draft_tokens}: 0 (all) or more")
        if self.schedule not in SCHEDULES:
            raise ConfigError(f"drafter schedule={self.schedule!r}: known: {', '.join(SCHEDULES)}")
        if not 0 <= self.threshold <= 1:
            raise ConfigError(f"drafter threshold={self.threshold}: 0 to 1")


def parallel_options(engine: EngineConfig, name: str) -> DrafterOptions:
    """The table of parallel drafter `name`; ConfigError for an unknown key or a wrong value."""
    where = f"engine.toml [drafters.{name}]"
    return read_table(DrafterOptions, engine.drafters.get(name, {}), where)
