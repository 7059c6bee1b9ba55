"""Determinism against every pair of answers compared by brute force."""

from __future__ import annotations

import itertools
import random
import re

import pytest

from engines.answers import Answer, GenerationRequest
from tests.verifier.oracle import request
from verifier.determinism import determinism


def answers(*groups: str) -> list[Answer]:
    """Group n's letters are the answers to request n: equal letters, equal ids."""
    return [
        Answer(request(n), (7, 7, ord(letter), 7), "length")
        for n, group in enumerate(groups)
        for letter in group
    ]


def never(asked: GenerationRequest, position: int) -> bool:
    return False


def at_two(asked: GenerationRequest, position: int) -> bool:
    return position == 2


def nobody_knows(asked: GenerationRequest, position: int) -> None:
    return None


@pytest.mark.parametrize(
    ("candidate", "stock", "ties", "word", "reason"),
    [
        (["aa", "bb"], ["aa", "bb"], never, "yes", "each of 2"),
        (["a", "b"], ["aa", "bb"], never, "cannot tell", "asked twice"),
        ([], [], never, "cannot tell", "asked twice"),
        (["ab", "bb"], ["aa", "bb"], never, "no", "1 of 2 repeated prompts .* r0, position 2"),
        (["ab", "bb"], ["aa", "bb"], at_two, "yes", "1 of 2 repeated prompts part, all at ties"),
        (["ab", "bb"], ["aa", "bb"], nobody_knows, "cannot tell", "no token was forced"),
        (["ab", "bb"], ["ac", "bb"], never, "cannot tell", "stock itself parts on 1"),
        (["ab", "bb"], ["a", "b"], never, "cannot tell", "stock was asked no prompt twice"),
    ],
)
def test_words(
    candidate: list[str], stock: list[str], ties: object, word: str, reason: str
) -> None:
    found = determinism(answers(*candidate), answers(*stock), ties)  # type: ignore[arg-type]
    assert found.deterministic == word

    assert re.search(reason, found.reason), found.reason


def test_an_end_that_comes_and_goes_is_a_difference() -> None:
    short = [Answer(request(0), ids, "stop") for ids in ((7, 7), (7, 7, 7))]
    found = determinism(short, answers("aa"), never)
    assert found.deterministic == "no" and "position 2" in found.reason


def test_other_terms_are_another_prompt() -> None:
    one, other = (
        Answer(request(0, tokens=4), (1,), "stop"),
        Answer(request(0, tokens=8), (2,), "stop"),
    )
    assert determinism([one, other], [], never).repeated == 0


def test_counts_agree_with_brute_force() -> None:
    rng = random.Random(3)
    groups = ["".join(rng.choice("ab") for _ in range(rng.randint(1, 3))) for _ in range(40)]
    found = determinism(answers(*groups), answers(*["zz"] * 40), never)
    assert found.repeated == sum(len(g) > 1 for g in groups)
    parted = sum(any(x != y for x, y in itertools.combinations(g, 2)) for g in groups)
    assert found.parted == found.untied == parted > 0
    assert (found.stock_repeated, found.stock_parted) == (40, 0)
