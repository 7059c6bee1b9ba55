"""Candidate prompts of one round: what the target is to write them from, and what it wrote."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from engines.training.chat_text import CODE_FENCE, code_completion, maths_question
from engines.training.library_functions import library_functions
from engines.training.maths_problems import draw_problem
from engines.training.openings import FAMILIES, Opening, draw_opening

_QUOTES = '"""'
_TOLD_TO_THINK = 0.75
_LIBRARY = 0.25
_PROBLEMS = 0.25


@dataclass(frozen=True)
class Candidate:
    """A user's message still to be checked; None where the target's text is of no use."""

    family: str
    message: str | None


def plan(
    count: int, weights: Mapping[str, float], rng: random.Random, library: Iterator[str]
) -> tuple[list[Candidate], list[Opening]]:
    """`count` candidates by family weight: those ready as they are, and openings."""
    ready: list[Candidate] = []
    openings: list[Opening] = []
    families = rng.choices(list(weights), list(weights.values()), k=count)
    for family in families:
        message = _ready_made(family, rng, library)
        if message is None:
            openings.append(draw_opening(family, rng))
        else:
            ready.append(Candidate(family, message))
    return ready, openings


def _ready_made(family: str, rng: random.Random, library: Iterator[str]) -> str | None:
    if family == "maths" and rng.random() < _PROBLEMS:
        return _told_to_think(draw_problem(rng), rng)
    if family == "code" and rng.random() < _LIBRARY:
        stub = next(library, None)
        return stub and code_completion(stub)
    return None


def shuffled_library(rng: random.Random) -> Iterator[str]:
    """The standard library's functions, each once."""
    functions = library_functions()
    rng.shuffle(functions)
    yield from functions


def complete(opening: Opening, written: str, ended: bool, rng: random.Random) -> Candidate:
    """The message of an opening and what the target wrote after it."""
    text = opening.text + written
    if opening.stub:
        stub = _up_to_docstring(text.removeprefix(CODE_FENCE))
        return Candidate(opening.family, None if stub is None else code_completion(stub))
    if not ended:
        return Candidate(opening.family, None)
    message = text.strip()
    if opening.family == "maths":
        message = _told_to_think(message, rng)
    return Candidate(opening.family, message)


def _told_to_think(problem: str, rng: random.Random) -> str:
    return maths_question(problem) if rng.random() < _TOLD_TO_THINK else problem


def parse_weights(text: str) -> dict[str, float]:
    """`maths=0.3,code=0.3,chat=0.4`; ValueError says what is wrong."""
    weights = dict.fromkeys(FAMILIES, 0.0)
    for part in text.split(","):
        name, _, value = part.partition("=")
        if name not in weights:
            raise ValueError(f"family {name!r} is none of {', '.join(FAMILIES)}")
        weights[name] = float(value)
    if min(weights.values()) < 0 or not sum(weights.values()) > 0:
        raise ValueError("weights must not be negative, nor all 0")
    return weights


def _up_to_docstring(text: str) -> str | None:
    """Signature and docstring alone; None where there is no docstring to speak of."""
    head, opened, rest = text.partition(_QUOTES)
    docstring, closed, _ = rest.partition(_QUOTES)
    if not opened or not closed or len(docstring.split()) < 3 or "def " not in head:
        return None
    return head + _QUOTES + docstring + _QUOTES
