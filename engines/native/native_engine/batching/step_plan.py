"""Which rows a step computes: a draft for every decoding sequence, prompts in what room is left."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch

from native_engine.batching.sampling import Draft
from native_engine.batching.sequence import Running
from native_engine.config import EngineConfig
from native_engine.drafters.protocol import Ask, BatchDrafter, Proposal


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
    [prefill] chunk_tokens, a draft within [speculation] draft_tokens.

    dropped: drafts that were given up or cut, because the drafter ran out of memory or drew from
    what is no distribution."""

    def __init__(self, drafter: BatchDrafter | None, knobs: EngineConfig) -> None:
        self._drafter = drafter
        self._chunk = knobs.prefill.chunk_tokens
        self._rows, self._prompt_rows = knobs.batching.rows_per_step, knobs.batching.prefill_rows
        self._draft_tokens = 0
        self.dropped = 0
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
        drafts = self._proposal(decoding, rows)
        return [
            Draft(r.slot, tokens, q, r.request.sampling, r.generator)
            for r, tokens, q in zip(decoding, drafts.tokens, drafts.q, strict=True)
        ]

    def _proposal(self, decoding: list[Running], rows: int) -> Proposal:
        nothing = Proposal([[] for _ in decoding], [None] * len(decoding))
        if self._drafter is None or not decoding:
            return nothing
        most = min(self._draft_tokens, rows // len(decoding) - 1)
        asks = [
            Ask(r.slot, r.tokens, max(0, min(most, r.room)), r.temperature, r.generator)
            for r in decoding
        ]
        if not any(ask.limit for ask in asks):
            return nothing
        try:
            given = self._drafter.propose(asks)
        except torch.OutOfMemoryError:
            self.dropped += len(asks)
            return nothing
        lengths = self._sound(given, asks)
        return Proposal(
            [tokens[:n] for tokens, n in zip(given.tokens, lengths, strict=True)],
            [q if q is None else q[:n] for q, n in zip(given.q, lengths, strict=True)],
        )

    def _sound(self, proposal: Proposal, asks: Sequence[Ask]) -> list[int]:
        """How much of each draft is verified: up to the first guess drawn from a q that is not
        finite. Earlier guesses did not depend on that one, so the answer's distribution stays."""
        lengths = [min(len(t), a.limit) for t, a in zip(proposal.tokens, asks, strict=True)]
        laws = [(i, q[: lengths[i]]) for i, q in enumerate(proposal.q) if q is not None]
        if laws:
            finite = torch.cat([q.sum(-1) for _, q in laws]).isfinite().tolist()
            for i, _ in laws:
                mine, finite = finite[: lengths[i]], finite[lengths[i] :]
                if not all(mine):
                    lengths[i] = mine.index(False)
                    self.dropped += 1
        return lengths
