"""The remedy for a name that is not known: the nearest known one, and all of them."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def name_hint(name: str, known: Iterable[str]) -> str:
    """`Did you mean 'native'? Known: native, transformers`."""
    names = sorted(known)
    near = difflib.get_close_matches(name.lower(), names, n=1, cutoff=0.5)
    guess = f"Did you mean {near[0]!r}? " if near else ""
    return f"{guess}Known: {', '.join(names)}"
