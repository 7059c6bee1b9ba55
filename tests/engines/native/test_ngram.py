"""Prompt lookup against a brute-force search and transformers' own generator."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from transformers.generation.candidate_generator import PromptLookupCandidateGenerator

from native_engine.errors import ConfigError
from native_engine.ngram import NgramDrafter, NgramOptions


def brute_force(ids: list[int], options: NgramOptions, k: int) -> list[int]:
    """Longest suffix first; copy with the period repeated past the end."""
    for n in range(options.max_n, options.min_n - 1, -1):
        suffix = ids[-n:]
        hits = [e for e in range(n, len(ids)) if len(suffix) == n and ids[e - n : e] == suffix]
        if hits:
            at = hits[0] if options.match == "first" else hits[-1]
            out = list(ids)
            for i in range(k):
                out.append(out[at + i])
            return out[len(ids) :]
    return []


@pytest.mark.parametrize("match", ["recent", "first"])
@pytest.mark.parametrize(("low", "high"), [(1, 3), (2, 2), (1, 6)])
def test_proposals_equal_a_brute_force_search(match: str, low: int, high: int) -> None:
    rng = random.Random(1)
    options = NgramOptions(low, high, match)
    for _ in range(20):
        drafter = NgramDrafter(options, 5)
        ids = [rng.randrange(6) for _ in range(rng.randrange(1, 5))]
        for _ in range(40):
            assert drafter.propose(ids) == brute_force(ids, options, 5)
            ids += [rng.randrange(6) for _ in range(rng.randrange(1, 4))]


TEXTS = Path(__file__).parent / "data" / "smollm2_texts.json"


def steps_to_write(text: list[int], prompt: int, propose: Callable[[list[int]], list[int]]) -> int:
    at, steps = prompt, 0
    while at < len(text):
        draft = propose(text[:at])
        accepted = 0
        while (
            accepted < len(draft)
            and at + accepted < len(text)
            and draft[accepted] == text[at + accepted]
        ):
            accepted += 1
        at += accepted + 1
        steps += 1
    return steps


def test_accept_length_is_at_least_transformers_on_a_real_models_answers() -> None:
    """Twelve greedy answers of SmolLM2-135M-Instruct (maths, code, prose), counted, not timed."""
    generator = PromptLookupCandidateGenerator(
        num_output_tokens=7, max_matching_ngram_size=3, max_length=10_000
    )

    def theirs(ids: list[int]) -> list[int]:
        out, _ = generator.get_candidates(torch.tensor([ids]))
        return out[0, len(ids) :].tolist()

    ours_total = theirs_total = 0
    for text in json.loads(TEXTS.read_text()):
        ids, prompt = text["prompt"] + text["answer"], len(text["prompt"]) + 1
        ours_total += steps_to_write(ids, prompt, NgramDrafter(NgramOptions(), 7).propose)
        theirs_total += steps_to_write(ids, prompt, theirs)
    assert ours_total <= theirs_total


def test_reset_forgets() -> None:
    drafter = NgramDrafter(NgramOptions(), 4)
    assert drafter.propose([1, 2, 3, 1, 2]) == [3, 1, 2, 3]
    drafter.reset()
    assert drafter.propose([7, 8, 1, 2]) == []


@pytest.mark.parametrize("bad", [{"min_n": 0}, {"min_n": 4, "max_n": 3}, {"match": "newest"}])
def test_bad_options_are_errors(bad: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=r"drafters\.ngram"):
        NgramOptions(**bad)  # type: ignore[arg-type]
