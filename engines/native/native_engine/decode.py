"""Greedy decoding of one sequence: prefill, one token a step, or draft and verify.

Verification is exact by construction: every committed token is the target's own argmax given the
tokens before it (Leviathan et al. 2023, section 2, at temperature 0).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from time import perf_counter

import torch
from torch import Tensor

from native_engine.config import PrefillKnobs
from native_engine.drafter import Drafter
from native_engine.errors import NotFinite
from native_engine.kv_cache import KVCache
from native_engine.llama import Llama


@dataclass(frozen=True)
class Step:
    """`tokens` committed, the bonus last; `logits` `[len(tokens), vocab]`, the rows that chose
    them; `rows` the target computed."""

    tokens: list[int]
    logits: Tensor
    rows: int


@dataclass
class PhaseTimes:
    """Seconds and counts since the last reset."""

    prefill_s: float = 0.0
    draft_s: float = 0.0
    forward_s: float = 0.0
    head_s: float = 0.0
    accept_s: float = 0.0
    prompt_tokens: int = 0
    steps: int = 0
    rows: int = 0
    drafted: int = 0
    committed: int = 0


def greedy(logits: Tensor) -> list[int]:
    """Argmax of each row of `[rows, vocab]`, the lowest id at ties; NotFinite over NaN or inf."""
    values, ids = logits.max(dim=-1)
    if not all(map(math.isfinite, values.tolist())):
        raise NotFinite("the target's logits hold NaN or infinity: no token can be chosen")
    chosen: list[int] = ids.tolist()
    return chosen


def accepted_prefix(draft: Sequence[int], chosen: Sequence[int]) -> int:
    """Length of the longest prefix of `draft` equal to the target's own choices."""
    count = 0
    for guess, truth in zip(draft, chosen, strict=False):
        if guess != truth:
            break
        count += 1
    return count


class Decoder:
    """One target, one cache, maybe a drafter. One sequence at a time; `start` begins a new one."""

    def __init__(
        self, model: Llama, cache: KVCache, drafter: Drafter | None, prefill: PrefillKnobs
    ) -> None:
        self.model = model
        self.cache = cache
        self.drafter = drafter
        self.prefill_knobs = prefill
        self.times = PhaseTimes()

    @property
    def _taps(self) -> Sequence[int]:
        return () if self.drafter is None else self.drafter.taps

    @torch.inference_mode()
    def start(
        self,
        ids: Sequence[int],
        visit_from: int | None = None,
        visit: Callable[[int, Tensor], None] | None = None,
        proceed: Callable[[], bool] = lambda: True,
    ) -> Tensor | None:
        """Read the prompt; logits `[1, vocab]` after its last token.

        `visit(position, logits)` gets the rows of positions `visit_from ..` but the last, a few at
        a time. `proceed` is asked before each chunk; None is returned once it says no."""
        began = perf_counter()
        self.cache.truncate(0)
        if self.drafter is not None:
            self.drafter.reset()
        chunk, few = self.prefill_knobs.chunk_tokens, self.prefill_knobs.head_rows
        last = len(ids) - 1
        first = last if visit is None or visit_from is None else visit_from
        hidden = None
        for begin in range(0, len(ids), chunk):
            if not proceed():
                return None
            part = torch.tensor(ids[begin : begin + chunk])
            hidden, taps = self.model.forward(part, self.cache, self._taps)
            if self.drafter is not None and taps:
                self.drafter.read(taps)
            end = min(begin + len(hidden), last)
            if visit is not None:
                for row in range(max(first, begin), end, few):
                    visit(row, self.model.logits(hidden[row - begin : min(row + few, end) - begin]))
        if hidden is None:
            raise ValueError("a prompt of no tokens has no next token")
        logits = self.model.logits(hidden[-1:])
        self.times.prefill_s += perf_counter() - began
        self.times.prompt_tokens += len(ids)
        return logits

    def steps(self, context: list[int], budget: int) -> Iterator[Step]:
        """Decode up to `budget` tokens after `context` (whose last token is not yet in the cache).

        `context` grows with what is committed. The caller stops asking when a stop token came."""
        while budget > 0:
            step = self._step(context, budget)
            budget -= len(step.tokens)
            yield step

    @torch.inference_mode()
    def _step(self, context: list[int], budget: int) -> Step:
        t0 = perf_counter()
        draft: list[int] = []
        if self.drafter is not None and budget > 1:
            draft = self.drafter.propose(context)[: budget - 1]
        rows = [context[-1], *draft]
        t1 = perf_counter()
        hidden, taps = self.model.forward(torch.tensor(rows), self.cache, self._taps)
        t2 = perf_counter()
        logits = self.model.logits(hidden)
        t3 = perf_counter()
        chosen = greedy(logits)
        accepted = accepted_prefix(draft, chosen)
        tokens = chosen[: accepted + 1]
        self.cache.truncate(len(context) + accepted)
        context.extend(tokens)
        if self.drafter is not None:
            self.drafter.observe(rows, logits, accepted)
        t4 = perf_counter()
        if self.drafter is not None and taps:
            self.drafter.read([tap[: accepted + 1] for tap in taps])
        times = self.times
        times.draft_s += t1 - t0 + perf_counter() - t4
        times.forward_s += t2 - t1
        times.head_s += t3 - t2
        times.accept_s += t4 - t3
        times.steps += 1
        times.rows += len(rows)
        times.drafted += len(draft)
        times.committed += len(tokens)
        return Step(tokens, logits[: accepted + 1], len(rows))
