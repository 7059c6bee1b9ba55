"""Answers to many prompts: slots of a batch, refilled as sequences end.

Every slot decodes its own sequence at its own length, so that a step is one CUDA graph whatever
the slots hold; the host looks at the batch only every `steps_per_round` steps.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice

import torch
from torch import Tensor

from engines.training.batched_target import BatchedTarget
from engines.training.errors import TrainingError
from engines.training.token_choice import TokenChoice, greedy, nucleus

_SPAN_STEP = 128
_PREFILL_TOKENS = 65536


@dataclass(frozen=True)
class GenerationOptions:
    """`temperature` 0 is greedy. `slots`: sequences under way at once; `steps_per_round`: decode
    steps between two looks at which have ended."""

    max_new_tokens: int
    slots: int = 2048
    temperature: float = 0.0
    top_p: float = 1.0
    steps_per_round: int = 16

    @property
    def choice(self) -> TokenChoice:
        return nucleus(self.temperature, self.top_p) if self.temperature else greedy


@dataclass(frozen=True)
class Answer:
    """`ids` of prompt number `index`; the stop token is their last where `ended`."""

    index: int
    ids: list[int]
    ended: bool


class Generator:
    """`run` answers prompts of at most `longest_prompt` tokens."""

    def __init__(
        self, target: BatchedTarget, options: GenerationOptions, longest_prompt: int, seed: int = 0
    ) -> None:
        self._target, self._options, self._choose = target, options, options.choice
        self.longest_prompt = longest_prompt
        torch.manual_seed(seed)
        slots, new = options.slots, options.max_new_tokens
        self._capacity = -(-(longest_prompt + new) // 16) * 16
        self._cache = target.cache(slots, self._capacity)
        self._stops = torch.tensor(target.config.eos_token_ids, device=target.device)

        def state(*shape: int) -> Tensor:
            return torch.zeros(shape, dtype=torch.int64, device=target.device)

        # Per slot: last token, its position, tokens generated, 1 while under way, the answer.
        self._token, self._position, self._count = state(slots), state(slots), state(slots)
        self._active, self._answers = state(slots), state(slots, new)
        self._graphs: dict[int, torch.cuda.CUDAGraph] = {}

    @torch.no_grad()
    def run(self, prompts: Iterable[Sequence[int]]) -> Iterator[Answer]:
        """Answers as they end, `index` counting the prompts from 0. Prompts of like length in a
        row waste least."""
        waiting = enumerate(prompts)
        free = list(range(self._options.slots))
        held: dict[int, int] = {}
        done: list[Answer] = []
        while True:
            batch = list(islice(waiting, len(free)))
            held.update(zip(free, (index for index, _ in batch), strict=False))
            for part in _portions([ids for _, ids in batch]):
                self._fill([batch[i][1] for i in part], [free[i] for i in part])
            if held:
                self._decode()
            # The device is at work meanwhile.
            yield from done
            if not held:
                return
            done = [
                Answer(held.pop(slot), ids, ids[-1] in self._target.config.eos_token_ids)
                for slot, ids in self._ended(held)
            ]
            free = [slot for slot in range(self._options.slots) if slot not in held]

    def _fill(self, prompts: list[Sequence[int]], slots: list[int]) -> None:
        """Read prompts into slots and choose each one's first token."""
        device = self._target.device
        width = max(map(len, prompts))
        if not 1 <= min(map(len, prompts)) <= width <= self.longest_prompt:
            raise TrainingError(
                f"a prompt has {width} tokens (or none), room is for {self.longest_prompt}",
                "Leave it out",
            )
        padded = torch.tensor([[*ids, *[0] * (width - len(ids))] for ids in prompts]).to(device)
        at = torch.tensor(slots).to(device)
        lengths = torch.tensor([len(ids) for ids in prompts]).to(device)
        hidden = self._target.prefill(padded, self._cache, at)
        last = hidden[torch.arange(len(prompts), device=device), lengths - 1]
        self._token[at] = self._choose(self._target.logits(last))
        self._position[at] = lengths
        self._count[at] = 0
        self._active[at] = 1
        self._record(at)

    def _record(self, at: Tensor) -> None:
        """Note the tokens just chosen in the slots `at`, and whether their answers end."""
        token, active, count = self._token[at], self._active[at], self._count[at]
        room = count.clamp(max=self._options.max_new_tokens - 1)
        self._answers[at, room] = torch.where(active > 0, token, self._answers[at, room])
        count = count + active
        stopped = (token.unsqueeze(1) == self._stops).any(1)
        going = ~stopped & (count < self._options.max_new_tokens)
        self._count[at] = count
        self._active[at] = active * going

    def _step(self, span: int) -> None:
        """One token more in every slot under way; others write where nobody reads."""
        lengths = (self._position + 1) * self._active
        hidden = self._target.step(self._token, self._position, lengths, self._cache, span)
        self._token.copy_(self._choose(self._target.logits(hidden)))
        self._position += self._active
        self._record(self._all)

    @property
    def _all(self) -> Tensor:
        return torch.arange(self._options.slots, device=self._target.device)

    def _decode(self) -> None:
        steps = self._options.steps_per_round
        span = self._capacity
        if self._target.needs_span:
            longest = int((self._position * self._active).max()) + steps
            span = min(span, -(-longest // _SPAN_STEP) * _SPAN_STEP)
        if self._target.device.type != "cuda":
            for _ in range(steps):
                self._step(span)
            return
        graph = self._graphs.get(span) or self._capture(span)
        for _ in range(steps):
            graph.replay()

    def _capture(self, span: int) -> torch.cuda.CUDAGraph:
        with self._nothing_under_way():
            stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                for _ in range(2):
                    self._step(span)
            torch.cuda.current_stream().wait_stream(stream)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                self._step(span)
        self._graphs[span] = graph
        return graph

    @contextmanager
    def _nothing_under_way(self) -> Iterator[None]:
        """Steps in here count for nothing: they write the cache where no answer ever reads."""
        state = (self._token, self._position, self._count, self._active, self._answers)
        saved = [tensor.clone() for tensor in state]
        self._position.fill_(self._capacity - 1)
        self._active.zero_()
        yield
        for tensor, was in zip(state, saved, strict=True):
            tensor.copy_(was)

    def _ended(self, held: dict[int, int]) -> list[tuple[int, list[int]]]:
        """Slots in use whose answers have ended, and those answers."""
        active = self._active.tolist()
        slots = [slot for slot in held if not active[slot]]
        if not slots:
            return []
        at = torch.tensor(slots).to(self._target.device)
        rows, counts = self._answers[at].tolist(), self._count[at].tolist()
        return [(slot, row[:n]) for slot, row, n in zip(slots, rows, counts, strict=True)]


def _portions(prompts: list[Sequence[int]]) -> Iterator[list[int]]:
    """Indices of prompts to read together: sorted by length, few enough tokens when padded."""
    order = sorted(range(len(prompts)), key=lambda i: len(prompts[i]))
    part: list[int] = []
    for i in order:
        if part and (len(part) + 1) * len(prompts[i]) > _PREFILL_TOKENS:
            yield part
            part = []
        part.append(i)
    if part:
        yield part
