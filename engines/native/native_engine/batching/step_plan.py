"""Which rows a step computes: a draft for every decoding sequence, prompts in what room is left."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor

from native_engine.batching.sampling import Draft
from native_engine.batching.sequence import Running
from native_engine.config import EngineConfig
from native_engine.drafters.protocol import Ask, BatchDrafter


class Part(NamedTuple):
    """A sequence's rows of a step: `known` tokens, then the draft. `chooses`: the known rows end
    with the last token, so that the next one is chosen."""

    running: Running
    known: int
    draft: Draft
    chooses: bool

    @property
    def rows(self) -> int:
        return self.known + len(self.draft.tokens)


class StepPlanner:
    """Keeps a step's rows within engine.toml's [batching] rows_per_step, a prompt's piece within
    [prefill] chunk_tokens, a draft within [speculation] draft_tokens."""

    def __init__(self, drafter: BatchDrafter | None, knobs: EngineConfig) -> None:
        self._drafter = drafter
        self._chunk = knobs.prefill.chunk_tokens
        self._rows, self._prompt_rows = knobs.batching.rows_per_step, knobs.batching.prefill_rows
        self._draft_tokens = 0
        if drafter is not None:
            self._draft_tokens = min(drafter.draft_tokens, knobs.speculation.draft_tokens)

    def parts(self, sequences: Sequence[Running]) -> list[Part]:
        """Every decoding sequence with its draft, then prompts while rows are left."""
        decoding = [running for running in sequences if running.decoding]
        reading = [running for running in sequences if not running.decoding]
        left = self._rows - min(self._prompt_rows, sum(running.pending for running in reading))
        drafts = self._drafts(decoding, left)
        parts = [Part(r, 1, draft, True) for r, draft in zip(decoding, drafts, strict=True)]
        left = self._rows - sum(part.rows for part in parts)
        for running in reading:
            known = min(running.pending, self._chunk, left)
            if known < 1:
                break
            draft = Draft(running.slot, (), None, running.request.sampling, running.generator)
            parts.append(Part(running, known, draft, known == running.pending))
            left -= known
        return parts

    def _drafts(self, decoding: list[Running], rows: int) -> list[Draft]:
        """A draft for each (empty where there is no room); together they fit in `rows` rows."""
        tokens: list[list[int]] = [[] for _ in decoding]
        q: list[Tensor | None] = [None] * len(decoding)
        if self._drafter is not None and decoding:
            most = min(self._draft_tokens, rows // len(decoding) - 1)
            asks = [
                Ask(r.slot, r.tokens, max(0, min(most, r.room)), r.temperature, r.generator)
                for r in decoding
            ]
            if any(ask.limit for ask in asks):
                proposal = self._drafter.propose(asks)
                tokens = [t[: ask.limit] for t, ask in zip(proposal.tokens, asks, strict=True)]
                q = [
                    law if law is None else law[: len(draft)]
                    for law, draft in zip(proposal.q, tokens, strict=True)
                ]
        return [
            Draft(r.slot, tokens[i], q[i], r.request.sampling, r.generator)
            for i, r in enumerate(decoding)
        ]
