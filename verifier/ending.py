"""Did the answer end where stock would have ended it? Early and late stops are both wrong.

Semantics are SGLang's: `ignore_eos` switches every stop id off; stop strings still stop; when the
length limit and a stop coincide either finish reason is right.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from engines.answers import Answer

Detokenize = Callable[[Sequence[int]], str]


@dataclass(frozen=True)
class StopRules:
    """What ends an answer of this target, beside what a request adds.

    `vocab_size` bounds ids; `eos_ids` are the target's own; `detokenize` (ids -> text) is needed
    only where a request has stop strings.
    """

    vocab_size: int
    eos_ids: frozenset[int] = frozenset()
    detokenize: Detokenize | None = None


@dataclass(frozen=True)
class Ending:
    """`ok` with its reason; `needs_stop_after`: the engine leaves the stop token out, so that
    stock's choice after the answer must be one of `stop_ids`. `bad_position` is the first token
    that should not be there (or is missing)."""

    ok: bool
    reason: str
    stop_ids: frozenset[int]
    needs_stop_after: bool = False
    bad_position: int | None = None


def check_ending(answer: Answer, rules: StopRules) -> Ending:
    """Judge length, finish reason and stop ids of one answer, without stock's choices."""
    request, ids = answer.request, answer.output_ids
    stops = frozenset() if request.ignore_eos else rules.eos_ids | set(request.stop_token_ids)
    limit, count = request.max_new_tokens, len(ids)

    def bad(reason: str, position: int) -> Ending:
        return Ending(False, reason, stops, bad_position=position)

    if count > limit:
        return bad(f"{count} tokens where at most {limit} were asked for", limit)
    early = next((i for i, token in enumerate(ids[:-1]) if token in stops), None)
    if early is not None:
        return bad(f"went on after stop token {ids[early]}", early + 1)
    text_stop = _stop_string(answer, rules)
    if text_stop is not None and text_stop < count:
        return bad("went on after a stop string", text_stop)
    stopped = (bool(ids) and ids[-1] in stops) or text_stop is not None
    if answer.finish_reason == "length":
        if count == limit:
            return Ending(True, "length limit reached", stops)
        why = "a stop was reported as length" if stopped else "early stop"
        return bad(f"{why}: {count} tokens, limit {limit}", count)
    if answer.finish_reason != "stop":
        return bad(f"unknown finish reason {answer.finish_reason!r}", count)
    if stopped:
        return Ending(True, "stop token" if text_stop is None else "stop string", stops)
    if not stops or count >= limit:
        return bad("finish reason stop without a stop token", count)
    return Ending(True, "stop token left out", stops, needs_stop_after=True)


def _stop_string(answer: Answer, rules: StopRules) -> int | None:
    """Number of tokens after which the text first holds a stop string, None if it never does."""
    wanted = answer.request.stop
    if not wanted:
        return None
    if rules.detokenize is None:
        raise ValueError("stop strings need StopRules.detokenize")
    ids = answer.output_ids

    def holds(count: int) -> bool:
        assert rules.detokenize is not None
        text = rules.detokenize(ids[:count])
        return any(stop in text for stop in wanted)

    return next((n for n in range(1, len(ids) + 1) if holds(n)), None)
