"""One request while it runs: its slot, how far it was read, what it answered."""

from __future__ import annotations

import secrets
from collections.abc import Callable

import torch
from torch import Tensor

from native_engine.engine import Engine
from native_engine.logprobs import Recorder
from native_engine.requests import GenerateRequest, GenerateResult

Emit = Callable[[list[int]], None]


class StopRules(Engine):
    """Where an answer ends: the single path's own rules, without its model."""

    def __init__(self, decode_text: Callable[[list[int]], str] | None) -> None:
        self.decode_text = decode_text

    # Add tokens to the answer up to the first stop; how many were kept.
    append = Engine._commit


class Running:
    """A sequence in a slot. `tokens`: prompt and answer, of which the target's state holds the
    first `held`. `error`: why the request ended without an answer."""

    def __init__(
        self, request: GenerateRequest, slot: int, held: int, emit: Emit, device: torch.device
    ) -> None:
        self.request = request
        self.slot = slot
        self.held = held
        self.emit = emit
        self.tokens = list(request.prompt_ids)
        self.result = GenerateResult(cached=held)
        self.error: Exception | None = None
        self.generator: torch.Generator | None = None
        if request.sampling is not None:
            seed = request.sampling.seed
            self.generator = torch.Generator(device)
            self.generator.manual_seed(secrets.randbits(63) if seed is None else seed)
        options = request.logprobs
        if options is not None:
            self.result.outputs = Recorder(options.top, options.raw_top)
            self.result.inputs = Recorder(options.top, options.raw_top)
            if options.start is not None:
                self.result.inputs.open(self.tokens[options.start])

    @property
    def pending(self) -> int:
        """Known tokens that the target has not read; at least one while the request runs."""
        return len(self.tokens) - self.held

    @property
    def decoding(self) -> bool:
        """Whether the prompt was read and the first token chosen."""
        return bool(self.result.output_ids)

    @property
    def room(self) -> int:
        """Draft tokens that can still become part of the answer (one token is the target's)."""
        return self.request.max_new_tokens - len(self.result.output_ids) - 1

    @property
    def temperature(self) -> float:
        return self.request.sampling.temperature if self.request.sampling is not None else 0.0

    @property
    def done(self) -> bool:
        return self.error is not None or self.result.finish is not None

    def abort(self) -> None:
        self.result.finish = {"type": "abort", "message": "cancelled by the client"}

    def scored(self, rows: int) -> range:
        """Of the next `rows` rows, those whose prediction of the prompt's next token was asked for,
        as positions."""
        options = self.request.logprobs
        if self.decoding or options is None or options.start is None:
            return range(0)
        end = min(self.held + rows, len(self.tokens) - 1)
        return range(max(self.held, options.start), end)

    def score(self, positions: range, logits: Tensor) -> None:
        """Record rows of prompt `positions`, `[len(positions), vocab]`."""
        assert self.result.inputs is not None
        followers = self.tokens[positions.start + 1 : positions.stop + 1]
        self.result.inputs.add(logits, followers)

    def extend(
        self, known: int, drafted: int, committed: list[int], logits: Tensor, rules: StopRules
    ) -> None:
        """The target read `known` more tokens and `drafted` guesses; `committed` follow the known
        ones, each chosen by its row of `logits` `[len(committed), vocab]`."""
        request, result = self.request, self.result
        if self.decoding:
            result.steps += 1
            result.drafted += drafted
            result.accepted += len(committed) - 1
        self.tokens.extend(committed)
        self.held += known + len(committed) - 1
        kept = len(committed)
        if request.max_new_tokens == 0:
            result.finish = {"type": "length", "length": 0}
        else:
            kept = rules.append(request, result, committed, self.emit)
        if result.outputs is not None:
            result.outputs.add(logits[:kept], committed[:kept])
