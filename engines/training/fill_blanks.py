"""Templates with `{blank}`s: each drawn from the words of its name, the same all through one."""

from __future__ import annotations

import random
import re

from engines.training.opening_words import WORDS

_BLANK = re.compile(r"\{(\w+)\}")
# Second and third draws from a list.
_SAME_LIST = {"other": "name", "third": "name", "thing2": "thing", "price2": "price"}


def filled(template: str, rng: random.Random) -> str:
    drawn: dict[str, str] = {}

    def word(found: re.Match[str]) -> str:
        blank = found[1]
        if blank not in drawn:
            words = WORDS[_SAME_LIST.get(blank, blank)]
            drawn[blank] = rng.choice([w for w in words if w not in drawn.values()] or words)
        return drawn[blank]

    return _BLANK.sub(word, template)
