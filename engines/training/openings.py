"""The first words of a user's message, by family; the target writes the rest (`{blank}`s are
filled from `opening_words`)."""

from __future__ import annotations

import random
from dataclasses import dataclass

from engines.training.chat_text import CODE_FENCE
from engines.training.fill_blanks import filled
from engines.training.maths_problems import draw_problem
from engines.training.opening_lines import OPENINGS, STUBS

FAMILIES = ("maths", "code", "chat")

_BARE = 0.12
_STUB = 0.6
_PROBLEM = 0.3
_BLANKED = 0.65


@dataclass(frozen=True)
class Opening:
    """`text` begins a user's message; a `stub` is code inside an open fence of CODE_FENCE."""

    family: str
    text: str
    stub: bool = False


def draw_opening(family: str, rng: random.Random) -> Opening:
    """One opening of a family. Some of `chat`'s are empty: the target writes the whole message."""
    if family == "chat" and rng.random() < _BARE:
        return Opening(family, "")
    if family == "maths" and rng.random() < _PROBLEM:
        return Opening(family, draw_problem(rng).rpartition(". ")[0] + ".")
    if family == "code" and rng.random() < _STUB:
        return Opening(family, CODE_FENCE + _begun(rng.choice(STUBS), rng), stub=True)
    # Those with blanks say more different things.
    blanked = rng.random() < _BLANKED
    fitting = [line for line in OPENINGS[family] if ("{" in line) == blanked]
    return Opening(family, _begun(rng.choice(fitting), rng))


def _begun(template: str, rng: random.Random) -> str:
    # No space at the end: the target's next token brings its own.
    return filled(template, rng).rstrip(" ")
