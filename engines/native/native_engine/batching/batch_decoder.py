"""One step of many sequences: prompts read in pieces, drafts verified, in one forward pass."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter
from typing import NamedTuple

import torch
from torch import Tensor

from native_engine.batching.sampling import Committed, Draft, verify
from native_engine.batching.sequence import Running, StopRules
from native_engine.batching.step_plan import Part, StepPlanner
from native_engine.config import EngineConfig
from native_engine.decode import PhaseTimes
from native_engine.drafters.protocol import BatchDrafter
from native_engine.errors import DeviceFull
from native_engine.targets.protocol import Forward, Rows, Target, TargetState

VerifyRule = Callable[[Tensor, Sequence[Draft]], list[Committed]]


class _Computed(NamedTuple):
    """A step before anything of it is committed. `logits` and `outcomes`: of the parts that
    choose, row after row, part after part."""

    parts: list[Part]
    rows: Rows
    forward: Forward
    logits: Tensor
    outcomes: list[Committed]


class BatchDecoder:
    """One target, its state, maybe a drafter; `rule` decides what of a draft is committed."""

    def __init__(
        self,
        target: Target,
        state: TargetState,
        drafter: BatchDrafter | None,
        knobs: EngineConfig,
        stops: StopRules,
        rule: VerifyRule = verify,
    ) -> None:
        self.target = target
        self.state = state
        self.drafter = drafter
        self.times = PhaseTimes()
        self.planner = StepPlanner(drafter, knobs)
        self._few = knobs.prefill.head_rows
        self._stops, self._rule = stops, rule

    @torch.inference_mode()
    def step(self, sequences: Sequence[Running]) -> None:
        """Advance running sequences, those that came first first. What ends one of them (`error`,
        `result.finish`) ends no other: a step that cannot be computed is taken one by one."""
        computed = None
        try:
            computed = self._compute(sequences)
        except Exception as error:
            if len(sequences) == 1:
                self._fail(sequences[0], error)
                return
        # Not while the error is handled: it holds the step's tensors, and memory may be short.
        if computed is None:
            for running in sequences:
                self.state.commit(running.slot, running.held)
                self.step([running])
            return
        began = self._clock()
        kept = self._commit(computed)
        self._observe(computed, kept)
        self.times.accept_s += self._clock() - began

    def begin(self, slot: int, held: int) -> None:
        """A new request begins in `slot`, whose state holds its first `held` tokens."""
        if self.drafter is not None:
            self.drafter.reset(slot, held)

    def _compute(self, sequences: Sequence[Running]) -> _Computed:
        t0 = self._clock()
        parts = self.planner.parts(sequences)
        t1 = self._clock()
        ids: list[int] = []
        for part in parts:
            begin = part.running.held
            ids += part.running.tokens[begin : begin + part.known]
            ids += part.draft.tokens
        runs = [(part.running.slot, part.running.held, part.rows) for part in parts]
        rows = Rows.of(torch.tensor(ids).to(self.target.device), runs)
        taps = self.drafter.taps if self.drafter is not None else ()
        forward = self.target.forward(rows, self.state, taps)
        t2 = self._clock()
        wanted = [
            row
            for part, span in zip(parts, rows.spans, strict=True)
            if part.chooses
            for row in range(span.begin + part.known - 1, span.end)
        ]
        chosen = _rows_of(forward.hidden, wanted)
        logits = self.target.logits(chosen) if wanted else chosen
        t3 = self._clock()
        drafts = [part.draft for part in parts if part.chooses]
        outcomes = self._rule(logits, drafts) if drafts else []
        self._count(parts, (t1 - t0, t2 - t1, t3 - t2, self._clock() - t3))
        return _Computed(parts, rows, forward, logits, outcomes)

    def _commit(self, computed: _Computed) -> list[int]:
        """Commit each part; how many of its rows are kept (0: the sequence failed)."""
        kept = []
        outcomes = iter(computed.outcomes)
        at = 0
        for part, span in zip(computed.parts, computed.rows.spans, strict=True):
            running, drafted = part.running, len(part.draft.tokens)
            outcome = next(outcomes) if part.chooses else []
            try:
                self._score(running, computed.forward.hidden[span.begin : span.end])
                if isinstance(outcome, Exception):
                    raise outcome
                if part.chooses:
                    self.times.committed += len(outcome) if running.decoding else 0
                    logits = computed.logits[at : at + len(outcome)]
                    running.extend(part.known, drafted, outcome, logits, self._stops)
                else:
                    running.held += part.known
                self.state.commit(running.slot, running.held)
                kept.append(running.held - span.start)
            except Exception as error:
                self._fail(running, error)
                kept.append(0)
            at += drafted + 1 if part.chooses else 0
        return kept

    def _score(self, running: Running, hidden: Tensor) -> None:
        """Prompt scoring, a few rows of logits at a time."""
        positions = running.scored(len(hidden))
        for begin in range(0, len(positions), self._few):
            some = positions[begin : begin + self._few]
            rows = hidden[some.start - running.held : some.stop - running.held]
            running.score(some, self.target.logits(rows))

    def _observe(self, computed: _Computed, kept: list[int]) -> None:
        """Show the drafter what was committed. If it fails, so do these sequences, unless their
        answers are whole."""
        if self.drafter is None or not self.drafter.taps or not any(kept):
            return
        spans = [(s, n) for s, n in zip(computed.rows.spans, kept, strict=True) if n]
        wanted = [row for span, n in spans for row in range(span.begin, span.begin + n)]
        runs = [(span.slot, span.start, n) for span, n in spans]
        rows = Rows.of(_rows_of(computed.rows.ids, wanted), runs)
        try:
            self.drafter.observe(rows, [_rows_of(tap, wanted) for tap in computed.forward.taps])
        except Exception as error:
            for part, n in zip(computed.parts, kept, strict=True):
                if n:
                    whole = part.running.result.finish is not None
                    self._fail(part.running, error)
                    part.running.error = None if whole else part.running.error

    def _fail(self, running: Running, error: Exception) -> None:
        if isinstance(error, torch.OutOfMemoryError):
            error = DeviceFull("the device has no memory left for this request; retry later")
        running.error = error
        self.state.reset(running.slot)
        running.held = 0

    def _clock(self) -> float:
        """Seconds, once the device has done what was asked: so that a phase is its own work."""
        if self.target.device.type == "cuda":
            torch.cuda.synchronize(self.target.device)
        return perf_counter()

    def _count(self, parts: list[Part], seconds: tuple[float, float, float, float]) -> None:
        """Prompt rows take their share of a mixed step."""
        draft_s, forward_s, head_s, accept_s = seconds
        decode = [part for part in parts if part.running.decoding]
        decode_rows = sum(part.rows for part in decode)
        prompt_rows = sum(part.rows for part in parts) - decode_rows
        share = decode_rows / (decode_rows + prompt_rows)
        times = self.times
        times.prefill_s += (1 - share) * (forward_s + head_s + accept_s)
        times.draft_s += draft_s
        times.forward_s += share * forward_s
        times.head_s += share * head_s
        times.accept_s += share * accept_s
        times.prompt_tokens += prompt_rows
        times.steps += bool(decode)
        times.rows += decode_rows
        times.drafted += sum(len(part.draft.tokens) for part in decode)


def _rows_of(values: Tensor, wanted: list[int]) -> Tensor:
    """Rows `wanted` (ascending) of `[total, ...]`; itself where that is all of them."""
    if len(wanted) == len(values):
        return values
    return values[torch.tensor(wanted, dtype=torch.long).to(values.device)]
