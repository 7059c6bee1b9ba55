"""Mixed load on a served engine: whole answers, streams, clients that hang up, bad requests.

Every choice comes from a seed. A finished answer is kept for token forcing; what must be refused
and what must not is counted apart."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from engines.answers import Answer, GenerationRequest
from engines.errors import BadRequest, EngineError
from engines.http_client import EngineClient

BAD_BODIES: tuple[dict[str, Any], ...] = (
    {},
    {"input_ids": [], "sampling_params": {}},
    {"input_ids": [-1], "sampling_params": {}},
    {"input_ids": [2**30], "sampling_params": {}},
    {"input_ids": "abc"},
    {"input_ids": [3], "sampling_params": {"max_new_tokens": -1}},
    {"input_ids": [3], "sampling_params": {"temprature": 0}},
    {"input_ids": [3] * 300_000, "sampling_params": {}},
)
# Of a hundred requests: streams, streams cut short, bad ones; the rest asks for whole answers.
STREAMS, CUTS, BAD = 25, 15, 10
_BACK_OFF_S = 1.0
_ERRORS_KEPT = 20


@dataclass(frozen=True)
class Shape:
    """What may be asked: `texts` to cut prompts from, most tokens of prompt and answer together,
    and the deployment's stop rules."""

    texts: Sequence[Sequence[int]]
    most_tokens: int
    most_new: int
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False

    def request(self, name: str, draw: random.Random) -> GenerationRequest:
        """Lengths from one token to the most, short ones as likely as long ones."""
        text = draw.choice(self.texts)
        new = _between(1, min(self.most_new, self.most_tokens - 1), draw)
        length = _between(1, min(len(text), self.most_tokens - new), draw)
        return GenerationRequest(
            id=name,
            prompt_ids=tuple(text[:length]),
            max_new_tokens=new,
            stop_token_ids=self.stop_token_ids,
            ignore_eos=self.ignore_eos,
        )


def _between(low: int, high: int, draw: random.Random) -> int:
    """Log-uniform in [low, high]."""
    return min(high, int(low * (high / low + 1 / low) ** draw.random()))


@dataclass
class Counts:
    """What happened so far; `errors` are those that should not have."""

    kinds: Counter[str] = field(default_factory=Counter)
    tokens: int = 0
    errors: list[str] = field(default_factory=list)


class Load:
    """`concurrency` clients, each one request after another until `stop`."""

    def __init__(
        self,
        client: EngineClient,
        shape: Shape,
        concurrency: int,
        seed: int,
        keep: Callable[[Answer], None],
    ) -> None:
        self.counts = Counts()
        self._client, self._shape, self._keep = client, shape, keep
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._threads = [
            threading.Thread(target=self._run, args=(f"c{i}", random.Random(seed * 1009 + i)))
            for i in range(concurrency)
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """No new requests; returns when the last answer has come."""
        self._ended.set()
        for thread in self._threads:
            thread.join()

    def _run(self, name: str, draw: random.Random) -> None:
        number = 0
        while not self._ended.is_set():
            number += 1
            try:
                kind, answer = self._one(f"{name}-{number}", draw)
            except EngineError as error:
                kind, answer = _error_kind(error), None
                with self._lock:
                    if kind == "failed" and len(self.counts.errors) < _ERRORS_KEPT:
                        self.counts.errors.append(f"{type(error).__name__}: {error}")
                if not self._ended.is_set():
                    time.sleep(_BACK_OFF_S)
            with self._lock:
                self.counts.kinds[kind] += 1
                if answer is not None:
                    self.counts.tokens += len(answer.output_ids)
                    if kind != "cut":
                        self._keep(answer)

    def _one(self, name: str, draw: random.Random) -> tuple[str, Answer | None]:
        die = draw.randrange(100)
        if die < BAD:
            try:
                self._client.post("/generate", draw.choice(BAD_BODIES))
            except BadRequest:
                return "refused", None
            return "accepted_bad", None
        request = self._shape.request(name, draw)
        if die < BAD + CUTS:
            answer = self._client.stream(request, cut=draw.randint(1, request.max_new_tokens))
            return ("cut" if answer.finish_reason == "cut" else "streamed"), answer
        if die < BAD + CUTS + STREAMS:
            return "streamed", self._client.stream(request)
        return "whole", self._client.generate(request)


def _error_kind(error: EngineError) -> str:
    return "back_pressure" if error.status in (429, 503) else "failed"
