"""Acceptance by a histogram instead of the target, for measuring speed without trained weights.

With random weights no drafter is ever right, so a step would always commit one token. `replay` does
all the work of a step (the wrapped drafter's, if one is named, and the exact verification) and then
commits as many draft tokens as a histogram of accept lengths says. Answers are wrong by design:
such an engine states `replayed` in /server_info, in every answer, in /metrics."""

from __future__ import annotations

import json
import math
import random
import tomllib
import zlib
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from native_engine.batching.sampling import Committed, Draft, verify
from native_engine.drafters.protocol import Ask, BatchDrafter, Proposal
from native_engine.errors import ConfigError
from native_engine.targets.protocol import Rows


@dataclass(frozen=True)
class ReplayOptions:
    """`histogram`: a file beside engine.toml (see `read_histogram`). `drafter`: a parallel drafter
    whose work is done and whose guesses count for nothing; empty: none."""

    histogram: str = ""
    drafter: str = ""
    seed: int = 0


def read_histogram(path: Path, draft_tokens: int) -> list[float]:
    """P(accept length = 1), P(2), ... (bonus token included), of a JSON list or of the list
    `accept_length` in a TOML or JSON file. ConfigError unless it is a distribution over at most
    `draft_tokens + 1` lengths."""
    try:
        text = path.read_text()
        raw = tomllib.loads(text) if path.suffix == ".toml" else json.loads(text)
    except (OSError, ValueError) as error:
        raise ConfigError(f"[drafters.replay] histogram {path}: {error}") from error
    chances = raw.get("accept_length") if isinstance(raw, dict) else raw
    if (
        not isinstance(chances, list)
        or not all(type(p) in (int, float) and p >= 0 for p in chances)
        or not math.isclose(sum(chances), 1.0, abs_tol=1e-3)
        or len(chances) > draft_tokens + 1
    ):
        raise ConfigError(
            f"[drafters.replay] histogram {path}: a list `accept_length` of at most "
            f"{draft_tokens + 1} probabilities (draft_tokens + 1) that sum to 1 is needed"
        )
    return [float(p) for p in chances]


class ReplayDrafter:
    """A BatchDrafter whose `verify` takes the place of the exact rule."""

    def __init__(
        self, histogram: list[float], draft_tokens: int, inner: BatchDrafter | None, seed: int = 0
    ) -> None:
        self.taps = inner.taps if inner is not None else ()
        self.draft_tokens = draft_tokens
        self._histogram, self._inner, self._seed = histogram, inner, seed
        self._random: dict[int, random.Random] = {}

    def open(self, slots: int, capacity: int) -> None:
        if self._inner is not None:
            self._inner.open(slots, capacity)

    def reset(self, slot: int, held: int = 0) -> None:
        self._random.pop(slot, None)
        if self._inner is not None:
            self._inner.reset(slot, held)

    def observe(self, rows: Rows, taps: Sequence[Tensor]) -> None:
        if self._inner is not None:
            self._inner.observe(rows, taps)

    def propose(self, asks: Sequence[Ask]) -> Proposal:
        """The wrapped drafter's, else the last token again and again."""
        for ask in asks:
            # By the prompt, so that a request is accepted alike in every run and beside any other.
            if ask.slot not in self._random:
                prompt = zlib.crc32(array("q", ask.context_ids).tobytes())
                self._random[ask.slot] = random.Random(prompt ^ self._seed)
        if self._inner is not None:
            return self._inner.propose(asks)
        drafts = [[ask.context_ids[-1]] * min(ask.limit, self.draft_tokens) for ask in asks]
        return Proposal(drafts, [None] * len(asks))

    def verify(self, logits: Tensor, drafts: Sequence[Draft]) -> list[Committed]:
        """As `sampling.verify`, with the number of accepted tokens drawn from the histogram."""
        return [
            self._replayed(draft, exact) if draft.tokens and isinstance(exact, list) else exact
            for draft, exact in zip(drafts, verify(logits, drafts), strict=True)
        ]

    def _replayed(self, draft: Draft, exact: list[int]) -> list[int]:
        lengths = range(1, len(self._histogram) + 1)
        length = self._random[draft.slot].choices(lengths, self._histogram)[0]
        return [*draft.tokens[: length - 1], exact[-1]]
