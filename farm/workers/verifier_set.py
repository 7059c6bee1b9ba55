"""Asks a resident candidate the verifier-only prompts: alone, then many at once, untimed.

Ends are made to happen: stock answers a prompt without stops first, and a token or a string from
the middle of its answer becomes the stop the candidate is asked for. Nothing is compared with
stock's text: every answer goes to token forcing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from engines.answers import Answer, GenerationRequest
from engines.errors import EngineTimeout
from settings.schema import Setting
from settings.verifier_prompts import StopCase, VerifierPrompt
from verifier.ending import Detokenize, StopRules

Generate = Callable[[GenerationRequest], Answer]
# Characters a stop string takes from each side of the border between two tokens.
_EACH_SIDE = 3
_BROKEN = "\ufffd"


@dataclass(frozen=True)
class Asking:
    """What is sent: requests one at a time, then others, `clients` of them under way together."""

    alone: tuple[GenerationRequest, ...] = ()
    together: tuple[GenerationRequest, ...] = ()
    clients: int = 1

    @property
    def requests(self) -> tuple[GenerationRequest, ...]:
        return (*self.alone, *self.together)

    def one_of_each_kind(self) -> Asking:
        """The first request of each kind, alone and together."""
        return replace(self, alone=_first_ones(self.alone), together=_first_ones(self.together))

    def answered(self, subject: Generate, seconds: float) -> tuple[Answer, ...]:
        """In the order of `requests`.

        Raises:
            EngineTimeout: not all had begun after `seconds`.
        """
        in_time = _Deadline(subject, seconds)
        alone = [in_time(request) for request in self.alone]
        return (*alone, *at_once(in_time, self.together, self.clients))


@dataclass(frozen=True)
class AskedSet:
    """What was asked and what came back, in the same order; `skipped` says which stop cases stock's
    answers gave no stop for."""

    asking: Asking = Asking()
    answers: tuple[Answer, ...] = ()
    skipped: tuple[str, ...] = ()

    @property
    def requests(self) -> tuple[GenerationRequest, ...]:
        return self.asking.requests


def ask_verifier_set(
    prompts: Sequence[VerifierPrompt],
    setting: Setting,
    rules: StopRules,
    reference: Generate,
    subject: Generate,
) -> AskedSet:
    """Asks `subject` every prompt; `reference` (stock) is asked for stops only.

    Raises:
        EngineError: of either engine, unchanged.
        EngineTimeout: the whole set takes longer than `verification.deadline_s`.
    """
    stops = _Stops(rules, reference)
    requests = {p.id: _request(p, setting, stops) for p in prompts}
    skipped = tuple(p.id for p in prompts if requests[p.id] is None)
    asking = Asking(
        alone=tuple(r for p in prompts if p.clients == 1 and (r := requests[p.id]) is not None),
        together=tuple(r for p in prompts if p.clients > 1 and (r := requests[p.id]) is not None),
        clients=max((p.clients for p in prompts), default=1),
    )
    answers = asking.answered(subject, setting.verification.deadline_s)
    return AskedSet(asking, answers, skipped)


def _first_ones(requests: Sequence[GenerationRequest]) -> tuple[GenerationRequest, ...]:
    first: dict[str, GenerationRequest] = {}
    for request in requests:
        first.setdefault(request.family, request)
    return tuple(first.values())


def at_once(
    generate: Generate, requests: Sequence[GenerationRequest], clients: int
) -> list[Answer]:
    """Answers in the order of `requests`, `clients` of them under way together."""
    with ThreadPoolExecutor(max_workers=clients) as pool:
        futures = [pool.submit(generate, request) for request in requests]
        try:
            return [future.result() for future in futures]
        finally:
            for future in futures:
                future.cancel()


def stop_token(ids: Sequence[int]) -> int | None:
    """The token nearest to the middle that occurs there for the first time; None for no ids."""
    first = sorted({ids.index(token) for token in ids})
    return None if not first else ids[min(first, key=lambda i: abs(i - len(ids) // 2))]


def stop_string(ids: Sequence[int], detokenize: Detokenize) -> str | None:
    """A string across a border between two tokens near the middle that the text did not hold
    before; None where the text has no such place."""
    middle = len(ids) // 2
    for border in sorted(range(1, len(ids)), key=lambda i: abs(i - middle)):
        before, after = detokenize(ids[:border]), detokenize(ids[: border + 1])
        if not before or not after.startswith(before) or after == before:
            continue
        piece = before[-_EACH_SIDE:] + after[len(before) :][:_EACH_SIDE]
        # A character cut between two tokens shows as a broken one.
        if _BROKEN not in piece and piece not in before:
            return piece
    return None


class _Deadline:
    """`generate` that refuses to begin once the set's time is spent."""

    def __init__(self, generate: Generate, seconds: float) -> None:
        self._generate = generate
        self._seconds = seconds
        self._end = time.monotonic() + seconds

    def __call__(self, request: GenerationRequest) -> Answer:
        if time.monotonic() > self._end:
            raise EngineTimeout(f"the verifier-only set did not end within {self._seconds:g} s")
        return self._generate(request)


class _Stops:
    """Stops taken from stock's own answers; each prompt is answered once."""

    def __init__(self, rules: StopRules, reference: Generate) -> None:
        self._rules = rules
        self._reference = reference
        self._answers: dict[tuple[int, ...], tuple[int, ...]] = {}

    def ids_of(self, request: GenerationRequest) -> tuple[int, ...]:
        """What stock says when nothing stops it."""
        prompt = request.prompt_ids
        if prompt not in self._answers:
            free = replace(request, stop_token_ids=(), stop=(), ignore_eos=True)
            self._answers[prompt] = self._reference(free).output_ids
        return self._answers[prompt]

    def before_end(self, request: GenerationRequest) -> tuple[int, ...]:
        """Its ids up to where it would end by itself: a stop behind that would not be met."""
        ids = self.ids_of(request)
        end = next((i for i, token in enumerate(ids) if token in self._rules.eos_ids), len(ids))
        return ids[:end]

    def token(self, request: GenerationRequest, case: StopCase) -> int | None:
        return stop_token(self.ids_of(request) if case == "ignored" else self.before_end(request))

    def string(self, request: GenerationRequest) -> str | None:
        if self._rules.detokenize is None:
            return None
        return stop_string(self.before_end(request), self._rules.detokenize)


def _request(prompt: VerifierPrompt, setting: Setting, stops: _Stops) -> GenerationRequest | None:
    """The request as it is sent; None for a stop case without a stop."""
    named = setting.decoding.stop_token_ids
    request = GenerationRequest(
        id=f"verifier/{prompt.id}",
        prompt_ids=prompt.prompt_ids,
        max_new_tokens=prompt.max_new_tokens,
        stop_token_ids=named,
        ignore_eos=prompt.ignore_eos,
        family=f"c{prompt.clients} {prompt.kind}",
    )
    if prompt.stop_case is None:
        return request
    if prompt.stop_case == "string":
        text = stops.string(request)
        return None if text is None else replace(request, stop=(text,))
    token = stops.token(request, prompt.stop_case)
    return None if token is None else replace(request, stop_token_ids=(*named, token))
