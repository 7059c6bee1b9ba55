"""What the verifier needs from a stock engine: one call that scores given tokens.

`engines.forcing.force(client, ...)` with the client bound is a `Forcer`; tests use brute-force
oracles instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

TOP_K = 4
"""Values a position that leave the stock server."""

# One answer to force: (prompt ids, output ids).
Pair = tuple[tuple[int, ...], tuple[int, ...]]


class Position(Protocol):
    """Stock's choice at one position, given the prompt and the answer's tokens before it.

    `token_id` is the committed token (None at the position after the answer), `token_logit` its
    value; `top` holds (id, value) of the best tokens; `raw` says whether values are logits as the
    target's head computed them (True) or log-probabilities (False).
    """

    @property
    def token_id(self) -> int | None: ...
    @property
    def token_logit(self) -> float | None: ...
    @property
    def top(self) -> tuple[tuple[int, float], ...]: ...
    @property
    def raw(self) -> bool: ...


class Forcer(Protocol):
    """Token-forces `output_ids` (N of them) after `prompt_ids` on stock without speculation.

    Returns N + 1 positions, the last one being the choice after the answer. Raises an
    `engines.errors.EngineError` when the engine fails.
    """

    def __call__(
        self, prompt_ids: Sequence[int], output_ids: Sequence[int], /
    ) -> Sequence[Position]: ...
