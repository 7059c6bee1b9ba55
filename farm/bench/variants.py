"""Prompts that nobody has asked, of the same length and kind as those that are timed.

Warm-up and probes need prompts that an engine cannot tell from timed ones and cannot have met: the
same chat template around the same words, cut somewhere in the middle and the halves swapped.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace

from engines.answers import GenerationRequest

FEWEST_TOKENS = 8
"""Tokens beside the template that a prompt must have to be made another one of."""


def variant(
    requests: Sequence[GenerationRequest], index: int, rng: random.Random
) -> GenerationRequest | None:
    """Request `index` with its own words (what is not common to all `requests`, the template) cut
    at a random place between a quarter and three quarters, and swapped; all terms unchanged.

    None where that leaves a prompt among `requests`, or there is too little to cut.
    """
    request = requests[index]
    ids = request.prompt_ids
    head = _common(requests, lambda r: r.prompt_ids)
    tail = _common(requests, lambda r: r.prompt_ids[head:][::-1])
    words = ids[head : len(ids) - tail]
    if len(words) < FEWEST_TOKENS:
        return None
    at = rng.randint(len(words) // 4, 3 * len(words) // 4)
    changed = (*ids[:head], *words[at:], *words[:at], *ids[len(ids) - tail :])
    if any(changed == other.prompt_ids for other in requests):
        return None
    return replace(request, id=f"{request.id}~{at}", prompt_ids=changed)


def _common(
    requests: Sequence[GenerationRequest], of: Callable[[GenerationRequest], tuple[int, ...]]
) -> int:
    """Tokens that all begin with; 0 where there is but one."""
    sequences = {of(request) for request in requests}
    if len(sequences) < 2:
        return 0
    first, last = min(sequences), max(sequences)
    pairs = zip(first, last, strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(first), len(last)))
