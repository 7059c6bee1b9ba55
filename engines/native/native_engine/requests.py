"""One greedy generation request and its result, in token ids."""

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
class GenerateRequest:
    """`stops` ends at a token, `stop_texts` at a string in the decoded answer."""

    id: str
    prompt_ids: tuple[int, ...]
    max_new_tokens: int
    stops: frozenset[int] = frozenset()
    stop_texts: tuple[str, ...] = ()
    logprobs: LogprobOptions | None = None


@dataclass
class GenerateResult:
    """`finish` is SGLang's finish_reason object; `steps` counts decode steps (prefill apart)."""

    output_ids: list[int] = field(default_factory=list)
    finish: dict[str, Any] | None = None
    steps: int = 0
    drafted: int = 0
    accepted: int = 0
    inputs: Recorder | None = None
    outputs: Recorder | None = None
