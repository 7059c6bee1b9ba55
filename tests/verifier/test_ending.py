"""Ends of answers against a brute-force oracle: the one answer an exact engine gives, and the ways
in which others differ from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from engines.answers import Answer, GenerationRequest
from tests.verifier.oracle import EOS, VOCAB, OracleModel
from verifier.ending import StopRules
from verifier.policy import exact_policy
from verifier.token_forcing import check_answer

# Token 2 is special: it adds no text. The others add one to three letters.
PIECES = ["", "", ""] + [("abc" * 3)[i % 3 : i % 3 + 1 + i % 3] for i in range(VOCAB - 3)]


def text_of(ids: Sequence[int]) -> str:
    return "".join(PIECES[i] for i in ids)


RULES = StopRules(VOCAB, frozenset({EOS}), text_of)


def the_answer(model: OracleModel, request: GenerationRequest) -> tuple[tuple[int, ...], set[str]]:
    """Token by token, literally: output ids and every right finish reason."""
    ids: list[int] = []
    while len(ids) < request.max_new_tokens:
        ids.append(int(model.logits([*request.prompt_ids, *ids]).argmax()))
        by_id = not request.ignore_eos and (ids[-1] == EOS or ids[-1] in request.stop_token_ids)
        by_text = any(stop in text_of(ids) for stop in request.stop)
        if by_id or by_text:
            at_limit = len(ids) == request.max_new_tokens
            return tuple(ids), {"stop", "length"} if at_limit else {"stop"}
    return tuple(ids), {"length"}


def drawn(rng: np.random.Generator, number: int) -> GenerationRequest:
    """A request with any mix of stops and limits."""
    letters = [
        "".join(rng.choice(list("abc"), rng.integers(2, 6))) for _ in range(rng.integers(0, 3))
    ]
    return GenerationRequest(
        id=f"r{number}",
        prompt_ids=tuple(int(i) for i in rng.integers(3, VOCAB, 3)),
        max_new_tokens=int(rng.choice([0, 1, 2, 7, 12, 30])),
        stop_token_ids=tuple(int(i) for i in rng.integers(3, VOCAB, rng.integers(0, 3))),
        ignore_eos=bool(rng.random() < 0.4),
        stop=tuple(letters),
    )


def right(model: OracleModel, answer: Answer) -> bool:
    positions = model.force(answer.request.prompt_ids, answer.output_ids)
    return check_answer(answer, positions, exact_policy(), RULES).ok


def on(
    model: OracleModel, prompt: tuple[int, ...], ids: tuple[int, ...], count: int
) -> tuple[int, ...]:
    """`ids` with `count` more of the model's own choices."""
    found = list(ids)
    for _ in range(count):
        found.append(int(model.logits([*prompt, *found]).argmax()))
    return tuple(found)


@pytest.mark.parametrize("seed", range(6))
def test_only_the_answer_itself_ends_rightly(seed: int) -> None:
    rng = np.random.default_rng(seed)
    model = OracleModel(seed, bf16=False)
    kinds = set()
    for number in range(60):
        request = drawn(rng, number)
        ids, reasons = the_answer(model, request)
        for reason in ("stop", "length"):
            assert right(model, Answer(request, ids, reason)) == (reason in reasons), request
        kinds.add((frozenset(reasons), len(ids) < request.max_new_tokens))
        stops = frozenset() if request.ignore_eos else {EOS, *request.stop_token_ids}
        for short in {ids[:-1], ids[:-2], ()} if ids else ():
            # An engine may leave out the stop token, and only that.
            left_out = short == ids[:-1] and ids[-1] in stops
            assert right(model, Answer(request, short, "stop")) == left_out, (request, short)
            assert not right(model, Answer(request, short, "length")), (request, short)
        for more in (1, 3):
            longer = on(model, request.prompt_ids, ids, more)
            for reason in ("stop", "length"):
                assert not right(model, Answer(request, longer, reason)), (request, more)
        assert not right(model, Answer(request, ids, "abort"))
    assert len(kinds) >= 3, "stops, limits and both at once were met"


def test_the_earliest_match_ends_a_text_however_its_tokens_lie() -> None:
    rules = StopRules(VOCAB, detokenize=text_of)
    ids = (4, 2, 2, 7, 8)  # "bc", two special tokens, "bc", "cab": "bcbccab"
    assert text_of(ids) == "bcbccab"
    request = GenerationRequest("r", (3,), 9, ignore_eos=True, stop=("cb", "never"))
    from verifier.ending import check_ending

    assert check_ending(Answer(request, ids[:4], "stop"), rules).ok
    assert check_ending(Answer(request, ids, "stop"), rules).bad_position == 4
    assert not check_ending(Answer(request, ids[:3], "stop"), rules).ok
    alone = replace(request, stop=("bc",))
    assert check_ending(Answer(alone, ids[:1], "stop"), rules).ok
    assert check_ending(Answer(alone, ids[:4], "stop"), rules).bad_position == 1
