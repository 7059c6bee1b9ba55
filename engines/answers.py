"""Requests and answers as the client saw them: the only currency of bench and verifier."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class GenerationRequest:
    """One greedy request in token ids. `family` groups prompts in reports (gsm8k, ...)."""

    id: str
    prompt_ids: tuple[int, ...]
    max_new_tokens: int
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    family: str = ""
    stop: tuple[str, ...] = ()


@dataclass(frozen=True)
class Answer:
    """What came back, on the client's clock.

    `arrivals` holds (seconds on the client's monotonic clock, output tokens received so far), one
    entry per streamed event; empty for a non-streamed call. `verify_steps` is the engine's own
    claim (`spec_verify_ct`), None where it states none.
    """

    request: GenerationRequest
    output_ids: tuple[int, ...]
    finish_reason: str
    sent_s: float = 0.0
    arrivals: tuple[tuple[float, int], ...] = ()
    verify_steps: int | None = None
    meta: dict[str, object] = field(default_factory=dict, compare=False)
