import math
from dataclasses import replace

import pytest

from engines.answers import Answer
from tests.verifier.oracle import EOS, VOCAB, OracleModel, OraclePosition, request
from verifier.ending import StopRules
from verifier.errors import ForcingError
from verifier.policy import MarginPolicy, exact_policy, unlimited
from verifier.token_forcing import TokenClass, check_answer, classify

RULES = StopRules(VOCAB, frozenset({EOS}))
EXACT = exact_policy()
NEAR = replace(unlimited("bf16_ulp"), allowed_gap=2.0)


def at(*top: float, raw: bool = True) -> OraclePosition:
    return OraclePosition(0, top[0], tuple(enumerate(top)), raw)


@pytest.mark.parametrize(
    ("value", "policy", "expected"),
    [
        (20.0, NEAR, TokenClass.ARGMAX),
        (19.875, NEAR, TokenClass.NEAR_TIE),
        (19.75, NEAR, TokenClass.NEAR_TIE),
        (19.625, NEAR, TokenClass.MISMATCH),
        (20.0 - 1e-4, EXACT, TokenClass.EXACT_TIE),
        (20.0 - 3e-4, EXACT, TokenClass.MISMATCH),
        (19.875, EXACT, TokenClass.MISMATCH),
        (math.nan, NEAR, TokenClass.MISMATCH),
        (-math.inf, NEAR, TokenClass.MISMATCH),
        (None, NEAR, TokenClass.MISMATCH),
        (math.nan, EXACT, TokenClass.MISMATCH),
        (math.nan, unlimited("bf16_ulp"), TokenClass.MISMATCH),
    ],
)
def test_classes(value: float | None, policy: MarginPolicy, expected: TokenClass) -> None:
    assert classify(value, at(20.0, 19.875, 19.0), policy)[0] is expected


def test_the_margin_does_not_shrink_where_stocks_best_is_small() -> None:
    usual = replace(NEAR, least_magnitude=27.9)
    assert classify(1.75, at(2.0), NEAR) == (TokenClass.MISMATCH, 16.0)
    assert classify(1.75, at(2.0), usual) == (TokenClass.NEAR_TIE, 2.0)
    assert classify(1.625, at(2.0), usual) == (TokenClass.MISMATCH, 3.0)


@pytest.mark.parametrize("top", [(math.nan, 19.0), (20.0, math.nan), (math.inf, 19.0), ()])
def test_stock_that_is_not_a_number_lets_nothing_through(top: tuple[float, ...]) -> None:
    position = OraclePosition(0, 20.0, tuple(enumerate(top)))
    assert classify(20.0, position, NEAR)[0] is TokenClass.MISMATCH


def test_a_tie_is_by_value_whatever_the_id() -> None:
    asked = replace(request(1, tokens=1), ignore_eos=True)
    for token in (4, 9):
        tied = OraclePosition(token, 20.0, ((4, 20.0), (9, 20.0), (2, 18.0)))
        after = OraclePosition(None, None, ((3, 20.0),))
        check = check_answer(Answer(asked, (token,), "length"), [tied, after], EXACT, RULES)
        assert check.ok and check.near_ties == check.exact_ties == 0


@pytest.mark.parametrize("bf16", [True, False])
def test_an_ar_answer_is_clean_and_one_altered_token_is_found_where_it_is(bf16: bool) -> None:
    model = OracleModel(3, bf16=bf16)
    policy = NEAR if bf16 else EXACT
    answer = model.generate(request(1))
    ids = answer.output_ids
    clean = check_answer(answer, model.force((1, 3, 5), ids), policy, RULES)
    assert clean.ok and clean.tokens_checked == 40 and clean.worst_gap_ulps == 0.0
    for position in (0, 17, 39):
        row = model.logits([1, 3, 5, *ids[:position]])
        wrong = int(row.argmin())
        altered = replace(answer, output_ids=(*ids[:position], wrong, *ids[position + 1 :]))
        check = check_answer(altered, model.force((1, 3, 5), altered.output_ids), policy, RULES)
        assert check.first_bad_position == position
        assert check.mismatches >= 1 and not check.ok


def answered(ids: tuple[int, ...], reason: str, *, limit: int = 40) -> Answer:
    return Answer(request(1, tokens=limit, ignore_eos=False), ids, reason)


def natural_stop() -> tuple[OracleModel, Answer]:
    """A model whose answer to request 1 ends with EOS between tokens 5 and 39."""
    for seed in range(200):
        model = OracleModel(seed, bf16=False)
        answer = model.generate(request(1, ignore_eos=False))
        if answer.finish_reason == "stop" and 5 < len(answer.output_ids) < 39:
            return model, answer
    raise AssertionError("no such seed")


def ends(model: OracleModel, answer: Answer) -> tuple[bool, int | None]:
    positions = model.force(answer.request.prompt_ids, answer.output_ids)
    check = check_answer(answer, positions, EXACT, RULES)
    return check.ok, check.first_bad_position


def test_ends_of_answers() -> None:
    model, whole = natural_stop()
    ids = whole.output_ids
    count = len(ids)
    assert ends(model, whole) == (True, None)
    assert ends(model, answered(ids[:-1], "stop")) == (True, None)  # stop token left out
    assert ends(model, answered(ids[:3], "stop")) == (False, 3)  # early stop
    assert ends(model, answered(ids[:3], "length")) == (False, 3)
    assert ends(model, answered(ids[:3], "length", limit=3)) == (True, None)
    assert ends(model, answered(ids, "length", limit=count)) == (True, None)
    assert ends(model, answered(ids[:-1], "stop", limit=count - 1))[0] is False
    assert ends(model, answered(ids, "abort")) == (False, count)
    longer = OracleModel.generate(model, request(1, tokens=40)).output_ids
    assert ends(model, answered(longer, "length")) == (False, count)  # ran over EOS
    assert ends(model, answered(ids[:3], "length", limit=2)) == (False, 2)  # over-long
    forced_eos = (*ids[:3], EOS)
    assert ends(model, answered(forced_eos, "stop")) == (False, 3)  # EOS stock did not choose


def test_ignore_eos_runs_over_stop_ids_and_never_stops() -> None:
    model, whole = natural_stop()
    full = model.generate(request(1))
    assert EOS in full.output_ids[:-1]
    assert ends(model, full) == (True, None)
    assert ends(model, replace(whole, request=request(1)))[0] is False


def test_request_stop_ids_count() -> None:
    model = OracleModel(5, bf16=False)
    full = model.generate(request(1)).output_ids
    stop = full[6]
    first = full.index(stop)
    asked = replace(request(1, ignore_eos=False), stop_token_ids=(stop,))
    rules = StopRules(VOCAB)

    def check(ids: tuple[int, ...], reason: str) -> bool:
        answer = Answer(asked, ids, reason)
        return check_answer(answer, model.force(asked.prompt_ids, ids), EXACT, rules).ok

    assert check(full[: first + 1], "stop")
    assert not check(full, "length")


def test_stop_strings_end_an_answer_at_the_token_that_completes_them() -> None:
    model = OracleModel(5, bf16=False)
    full = model.generate(request(1)).output_ids
    rules = StopRules(VOCAB, detokenize=lambda ids: "".join(chr(97 + i) for i in ids))
    word = "".join(chr(97 + i) for i in full[4:6])
    asked = replace(request(1), stop=(word,))

    def check(ids: tuple[int, ...], reason: str) -> bool:
        answer = Answer(asked, ids, reason)
        return check_answer(answer, model.force(asked.prompt_ids, ids), EXACT, rules).ok

    assert check(full[:6], "stop")
    assert not check(full[:7], "stop")
    assert not check(full, "length")
    assert not check(full[:5], "stop")


def test_positions_of_another_answer_are_an_error_not_a_verdict() -> None:
    model = OracleModel(3)
    answer = model.generate(request(1))
    positions = model.force((1, 3, 5), answer.output_ids)
    with pytest.raises(ForcingError, match="40 positions for 40 tokens"):
        check_answer(answer, positions[:-1], NEAR, RULES)
    other = [replace(positions[0], token_id=positions[0].token_id + 1), *positions[1:]]
    with pytest.raises(ForcingError, match="position 0"):
        check_answer(answer, other, NEAR, RULES)
    above = [replace(positions[0], token_logit=99.0), *positions[1:]]
    with pytest.raises(ForcingError, match="top list"):
        check_answer(answer, above, NEAR, RULES)
    logprobs = [replace(p, raw=False) for p in positions]
    with pytest.raises(ForcingError, match="another unit"):
        check_answer(answer, logprobs, NEAR, RULES)
