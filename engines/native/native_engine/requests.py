"""One generation request and its result, in token ids."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from native_engine.logprobs import Recorder


@dataclass(frozen=True)
class LogprobOptions:
    """`start` is the first prompt position scored (None: none of the prompt)."""

    start: int | None
    top: int
    raw_top: int


@dataclass(frozen=True)
class SamplingOptions:
    """Random choice: softmax of logits / `temperature` (above 0) over the `top_k` likeliest tokens
    (0: all), of these the fewest that hold `top_p` of the probability. `seed` None: a fresh one."""

    temperature: float
    top_p: float = 1.0
    top_k: int = 0
    seed: int | None = None


@dataclass(frozen=True)
class GenerateRequest:
    """`stops` ends at a token, `stop_texts` at a string in the decoded answer. `sampling` None:
    greedy."""

    id: str
    prompt_ids: tuple[int, ...]
    max_new_tokens: int
    stops: frozenset[int] = frozenset()
    stop_texts: tuple[str, ...] = ()
    logprobs: LogprobOptions | None = None
    sampling: SamplingOptions | None = None


@dataclass
class GenerateResult:
    """`finish` is SGLang's finish_reason object; `steps` counts decode steps (prefill apart);
    `cached`, prompt tokens not computed again. `replayed`: accept lengths were simulated."""

    output_ids: list[int] = field(default_factory=list)
    finish: dict[str, Any] | None = None
    steps: int = 0
    drafted: int = 0
    accepted: int = 0
    cached: int = 0
    replayed: bool = False
    inputs: Recorder | None = None
    outputs: Recorder | None = None
