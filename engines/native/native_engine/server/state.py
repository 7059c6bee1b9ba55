"""What every handler shares: the launch facts, the scheduler, the tokenizer, the counters."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from native_engine.batching.batch_scheduler import BatchScheduler
from native_engine.config import EngineConfig
from native_engine.scheduler import Scheduler
from native_engine.server.fields import MAX_BODY_BYTES
from native_engine.tokenizer import Tokenizer


@dataclass(frozen=True)
class LaunchFacts:
    """The command line, as `/server_info` reports it."""

    model_dir: str
    served_model_name: str
    arm: str
    tree_hash: str
    dtype: str
    threads: int
    speculation: bool
    max_total_tokens: int
    max_running_requests: int
    max_queued_requests: int
    max_body_bytes: int = MAX_BODY_BYTES
    device: str = "cpu"
    load_format: str = "safetensors"
    draft_model_dir: str | None = None
    prefix_reuse: bool = False


@dataclass
class Counters:
    """Since start or the last flush. `aborted`: given up by their clients."""

    requests: int = 0
    failed: int = 0
    aborted: int = 0
    prompt_tokens: int = 0
    output_tokens: int = 0
    verify_steps: int = 0

    @property
    def accept_length(self) -> float:
        return self.output_tokens / self.verify_steps if self.verify_steps else 0.0


@dataclass
class ServerState:
    facts: LaunchFacts
    knobs: EngineConfig
    scheduler: Scheduler | BatchScheduler
    tokenizer: Tokenizer | None
    counters: Counters = field(default_factory=Counters)
    started: float = field(default_factory=time.time)

    @property
    def batch(self) -> BatchScheduler | None:
        """The scheduler of the batch path; None on the single-sequence path, which is greedy."""
        return self.scheduler if isinstance(self.scheduler, BatchScheduler) else None

    @property
    def replayed(self) -> bool:
        """Accept lengths are simulated: answers are wrong by design."""
        return self.batch is not None and self.batch.engine.replayed

    @property
    def vocab_size(self) -> int:
        return self.scheduler.engine.model_config.vocab_size
