"""Unseen prompts: same length, same words, same template, never one of those that are asked."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

from farm.bench.variants import FEWEST_TOKENS, variant
from tests.farm.bench.fakes import request

HEAD, TAIL = (1, 2, 3, 4), (5, 6)


def templated(*bodies: tuple[int, ...]):  # type: ignore[no-untyped-def]
    base = replace(request("p"), stop=("x",), ignore_eos=True)
    return [
        replace(base, id=f"p{n}", prompt_ids=(*HEAD, *body, *TAIL)) for n, body in enumerate(bodies)
    ]


BODIES = (tuple(range(10, 40)), tuple(range(50, 71)), tuple(range(80, 90)))


def test_length_words_template_and_terms_stay() -> None:
    requests = templated(*BODIES)
    for index, asked in enumerate(requests):
        made = variant(requests, index, random.Random(3))
        assert made is not None
        ids = made.prompt_ids
        assert len(ids) == len(asked.prompt_ids)
        assert ids[:4] == HEAD and ids[-2:] == TAIL
        assert Counter(ids) == Counter(asked.prompt_ids)
        assert ids not in {r.prompt_ids for r in requests}
        # The first word differs: no prefix beyond the template is shared.
        assert ids[4] != asked.prompt_ids[4]
        assert replace(made, id=asked.id, prompt_ids=asked.prompt_ids) == asked


def test_the_seed_decides_the_cut() -> None:
    requests = templated(*BODIES)
    made = {variant(requests, 0, random.Random(seed)) for seed in range(40)}
    assert len(made) > 8
    assert variant(requests, 0, random.Random(1)) == variant(requests, 0, random.Random(1))


def test_what_cannot_be_made_another_prompt_is_left_alone() -> None:
    short = templated(tuple(range(10, 10 + FEWEST_TOKENS - 1)), tuple(range(40, 70)))
    assert variant(short, 0, random.Random(0)) is None
    # Swapped halves of a period are the same text.
    same = templated((7,) * 20, tuple(range(40, 70)))
    assert variant(same, 0, random.Random(0)) is None
    # A single prompt has no template to tell from its words.
    (alone,) = templated(BODIES[0])
    made = variant([alone], 0, random.Random(0))
    assert made is not None and Counter(made.prompt_ids) == Counter(alone.prompt_ids)
