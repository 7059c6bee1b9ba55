"""Prompt-lookup drafting: what followed the last n tokens earlier in the text.

Prompt lookup decoding (Saxena 2023). The longest of max_n .. min_n that occurs earlier wins. The
copy may run past the end of the text into itself, so a short cycle is drafted at full length.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from native_engine.errors import ConfigError


@dataclass(frozen=True)
class NgramOptions:
    """`match`: which earlier occurrence to copy from, 'recent' or 'first'."""

    min_n: int = 1
    max_n: int = 3
    match: str = "recent"

    def __post_init__(self) -> None:
        if not 1 <= self.min_n <= self.max_n:
            raise ConfigError(
                f"engine.toml [drafters.ngram] min_n={self.min_n}, max_n={self.max_n}: "
                "1 <= min_n <= max_n is needed"
            )
        if self.match not in ("recent", "first"):
            raise ConfigError(
                f"engine.toml [drafters.ngram] match={self.match!r}: known: 'first', 'recent'"
            )


class NgramDrafter:
    """An index from n-gram to where it was followed, kept up with the growing text."""

    taps: tuple[int, ...] = ()

    def __init__(self, options: NgramOptions, draft_tokens: int) -> None:
        self._sizes = tuple(range(options.max_n, options.min_n - 1, -1))
        self._keep_first = options.match == "first"
        self._draft_tokens = draft_tokens
        self.reset()

    def reset(self) -> None:
        self._next: dict[tuple[int, ...], int] = {}
        self._indexed = 1

    def propose(self, context_ids: Sequence[int]) -> list[int]:
        self._index(context_ids)
        length = len(context_ids)
        for n in self._sizes:
            if n < length:
                at = self._next.get(tuple(context_ids[-n:]))
                if at is not None:
                    return _copy(context_ids, at, self._draft_tokens)
        return []

    def observe(self, rows: Sequence[int], logits: Tensor, accepted: int) -> None:
        """Nothing to learn: the text itself is the index."""

    def read(self, taps: Sequence[Tensor]) -> None:
        """Asks for none."""

    def _index(self, ids: Sequence[int]) -> None:
        """Enter every n-gram that ends before the last token; its value is where it continues."""
        for end in range(self._indexed, len(ids)):
            for n in self._sizes:
                if n <= end:
                    gram = tuple(ids[end - n : end])
                    if self._keep_first:
                        self._next.setdefault(gram, end)
                    else:
                        self._next[gram] = end
        self._indexed = max(self._indexed, len(ids))


def _copy(ids: Sequence[int], at: int, count: int) -> list[int]:
    """`count` tokens from position `at` on, repeating the period when the end is reached."""
    draft = list(ids[at : at + count])
    period = len(ids) - at
    while len(draft) < count:
        draft.append(draft[-period])
    return draft
