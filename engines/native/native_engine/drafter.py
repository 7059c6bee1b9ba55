"""What a drafter is, and which there are. Add one: a module with class and options, a line here."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from torch import Tensor

from native_engine.config import EngineConfig
from native_engine.drafters.options import PARALLEL_DRAFTERS, parallel_options
from native_engine.ngram import NgramDrafter, NgramOptions
from native_engine.tables import read_table, unknown_name


class Drafter(Protocol):
    """Guesses the tokens that follow; a wrong guess costs time, never correctness."""

    @property
    def taps(self) -> tuple[int, ...]:
        """Target layers whose outputs `read` wants, rising; none where the text is enough."""
        ...

    def reset(self) -> None:
        """A new request begins; nothing of the last one may be kept unless the drafter says so."""
        ...

    def propose(self, context_ids: Sequence[int]) -> list[int]:
        """Up to `draft_tokens` guesses after `context_ids` (prompt and answer so far)."""
        ...

    def observe(self, rows: Sequence[int], logits: Tensor, accepted: int) -> None:
        """After a verify step: its input `rows` (last token, then the draft), the target's
        `[len(rows), vocab]` logits, and how many draft tokens were accepted."""
        ...

    def read(self, taps: Sequence[Tensor]) -> None:
        """The target's `taps` for the next committed rows (of the prompt, then of each step), each
        `[rows, hidden]`; never called where there are none."""
        ...


def _ngram(options: Mapping[str, Any], draft_tokens: int) -> Drafter:
    return NgramDrafter(
        read_table(NgramOptions, options, "engine.toml [drafters.ngram]"), draft_tokens
    )


DRAFTERS: dict[str, Callable[[Mapping[str, Any], int], Drafter]] = {"ngram": _ngram}


def make_drafter(engine: EngineConfig) -> Drafter | None:
    """The drafter engine.toml names; None for one with weights, whose options are read all the
    same. ConfigError for an unknown name, table or option."""
    name = engine.speculation.drafter
    known = (*DRAFTERS, *PARALLEL_DRAFTERS)
    for given in (name, *engine.drafters):
        if given not in known:
            raise unknown_name("engine.toml drafter", given, known)
    if name in PARALLEL_DRAFTERS:
        parallel_options(engine, name)
        return None
    return DRAFTERS[name](engine.drafters.get(name, {}), engine.speculation.draft_tokens)
