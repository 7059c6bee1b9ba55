"""Faster than the hardware can be: then tokens were not computed where and when they were timed.

A verify step reads the target's weights once, whoever shares it, and commits at most the draft and
one token more; every committed token passes the target as a row. So an answer of N tokens takes at
least ceil(N / tokens a step) reads of the weights and N rows of arithmetic. Times are the client's.
The bound is meant to be unreachable, not tight: see `verifier.target_size` and `settings.hardware`
for what is given away.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from settings.hardware import Ceiling
from verifier.target_size import TargetSize

# The longest draft shipped here is 15 tokens; four times that and some. Where stock's own draft
# is longer still, the caller raises it.
MOST_TOKENS_A_STEP = 65


@dataclass(frozen=True)
class TimedAnswer:
    """One answer on the client's clock: prompt tokens that had to be read for it (0 where a cache
    may hold them), tokens of the first event and of all, seconds the engine ran until each."""

    request_id: str
    prompt_tokens: int
    first_tokens: int
    tokens: int
    first_s: float
    total_s: float


@dataclass(frozen=True)
class PhysicalBound:
    """Least seconds on one device; `tokens_per_step` is the most a verify step may commit."""

    size: TargetSize
    ceiling: Ceiling
    tokens_per_step: int = MOST_TOKENS_A_STEP

    @property
    def step_s(self) -> float:
        """One read of the weights, less what the chip's cache may keep."""
        from_memory = max(self.size.step_bytes - self.ceiling.cache_bytes, 0.0)
        return from_memory / self.ceiling.bytes_per_s

    def decode_s(self, tokens: int) -> float:
        """Least seconds for `tokens` further tokens of one answer."""
        steps = math.ceil(max(tokens, 0) / self.tokens_per_step)
        return max(steps * self.step_s, max(tokens, 0) * self._row_s)

    def answer_s(self, prompt_tokens: int, tokens: int) -> float:
        """Least seconds from sending to the last token: the prompt's pass gives the first one."""
        prefill = max(self.step_s, max(prompt_tokens, 1) * self._row_s)
        return prefill + self.decode_s(tokens - 1) if tokens > 0 else 0.0

    @property
    def _row_s(self) -> float:
        return self.size.token_flops / self.ceiling.flops

    def to_json(self) -> dict[str, Any]:
        """The numbers a verdict quotes."""
        return {**asdict(self), "step_s": self.step_s, "row_s": self._row_s}


@dataclass(frozen=True)
class Impossible:
    """A time below the bound, in seconds. `what` names the answer, or all of them together."""

    what: str
    tokens: int
    seconds: float
    least_s: float

    def sentence(self) -> str:
        return (
            f"{self.what}: {self.tokens} tokens in {self.seconds * 1e3:.2f} ms, the hardware needs "
            f"at least {self.least_s * 1e3:.2f} ms"
        )


def faster_than_hardware(answers: Sequence[TimedAnswer], bound: PhysicalBound) -> Impossible | None:
    """The first impossible time, None when all could have been computed.

    Each answer as a whole is held to the bound: the client's delays can only lengthen it. Decoding
    alone is held to it over all answers together, because a first event that the client read late
    shortens what is left of that one answer. A time that is no number is impossible.
    """
    for answer in answers:
        least = bound.answer_s(answer.prompt_tokens, answer.tokens)
        if not answer.total_s >= least:
            return Impossible(f"request {answer.request_id}", answer.tokens, answer.total_s, least)
    tokens = sum(a.tokens - a.first_tokens for a in answers)
    seconds = sum(a.total_s - a.first_s for a in answers)
    least = sum(bound.decode_s(a.tokens - a.first_tokens) for a in answers)
    if not seconds >= least:
        return Impossible(f"decoding of {len(answers)} answers", tokens, seconds, least)
    return None
