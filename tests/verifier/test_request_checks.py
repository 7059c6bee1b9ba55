import re
from dataclasses import replace

import pytest

from engines.answers import Answer
from tests.verifier.oracle import VOCAB, OracleModel, request
from verifier.judgement import judge_malformed
from verifier.request_checks import check_requests

MODEL = OracleModel(1)
REQUESTS = [request(n, tokens=8) for n in range(3)]
ANSWERS = [MODEL.generate(r) for r in REQUESTS]


def first(answer: Answer) -> list[Answer]:
    return [answer, *ANSWERS[1:]]


def changed(**fields: object) -> list[Answer]:
    return first(replace(ANSWERS[0], **fields))  # type: ignore[arg-type]


def test_the_batch_that_was_asked_for_is_clean() -> None:
    assert check_requests(REQUESTS, ANSWERS, VOCAB) == []


@pytest.mark.parametrize(
    ("answers", "kind", "status"),
    [
        (ANSWERS[:2], "count", "cheating"),
        ([*ANSWERS, ANSWERS[0]], "count", "cheating"),
        ([ANSWERS[1], ANSWERS[0], ANSWERS[2]], "order", "cheating"),
        (changed(request=replace(REQUESTS[0], prompt_ids=(9, 9))), "prompt", "cheating"),
        (changed(request=replace(REQUESTS[0], max_new_tokens=4)), "terms", "cheating"),
        (changed(output_ids=(3, VOCAB)), "ids", "not_lossless"),
        (changed(output_ids=(3, -1)), "ids", "not_lossless"),
        (changed(output_ids=(3, 2.0)), "ids", "not_lossless"),
        (changed(output_ids=(True,)), "ids", "not_lossless"),
        (changed(output_ids=(3,) * 9), "length", "not_lossless"),
        (changed(finish_reason="tired"), "finish", "not_lossless"),
    ],
)
def test_problems(answers: list[Answer], kind: str, status: str) -> None:
    problems = check_requests(REQUESTS, answers, VOCAB)
    assert problems[0].kind == kind
    judgement = judge_malformed(problems)
    assert judgement.status == status and kind in judgement.reason


LENGTH = len(ANSWERS[0].output_ids)
GOOD = tuple((0.5 * n, n) for n in range(1, LENGTH + 1))
META = {
    "completion_tokens": LENGTH,
    "prompt_tokens": len(REQUESTS[0].prompt_ids),
    "finish_reason": {"type": ANSWERS[0].finish_reason, "length": 8},
    "e2e_latency": 0.25,
    "output_token_logprobs": [[-0.5, 3, None]],
}


def test_an_answer_that_agrees_with_itself_is_clean() -> None:
    answers = changed(arrivals=GOOD, meta=META, verify_steps=LENGTH + 1)
    assert check_requests(REQUESTS, answers, VOCAB) == []


@pytest.mark.parametrize(
    ("fields", "kind", "detail", "status"),
    [
        (
            {"arrivals": ((2.0, 1), (1.0, LENGTH))},
            "arrivals",
            "times run backwards",
            "not_lossless",
        ),
        ({"arrivals": ((1.0, 1),), "sent_s": 1.5}, "arrivals", "times run", "not_lossless"),
        ({"arrivals": ((1.0, 2), (2.0, 1))}, "arrivals", "counts run backwards", "not_lossless"),
        ({"arrivals": GOOD[:-1]}, "arrivals", f"the answer has {LENGTH}", "not_lossless"),
        ({"arrivals": ((float("nan"), LENGTH),)}, "numbers", "an arrival", "not_lossless"),
        ({"arrivals": ((float("inf"), LENGTH),)}, "numbers", "an arrival", "not_lossless"),
        ({"meta": {"e2e_latency": float("nan")}}, "numbers", "e2e_latency", "not_lossless"),
        ({"meta": {"a": [{"b": float("inf")}]}}, "numbers", r"a\.0\.b", "not_lossless"),
        ({"meta": {"completion_tokens": LENGTH - 1}}, "meta", "completion_tokens", "cheating"),
        ({"meta": {"prompt_tokens": 1}}, "meta", "counted were 3", "cheating"),
        ({"meta": {"prompt_tokens": "3"}}, "meta", "prompt_tokens", "cheating"),
        ({"meta": {"finish_reason": {"type": "tired"}}}, "meta", "ended by", "cheating"),
        ({"meta": {"finish_reason": "tired"}}, "meta", "ended by", "cheating"),
        ({"verify_steps": LENGTH + 2}, "meta", "verify steps", "cheating"),
        ({"verify_steps": -1}, "meta", "verify steps", "cheating"),
    ],
)
def test_contradictions(fields: dict[str, object], kind: str, detail: str, status: str) -> None:
    problems = check_requests(REQUESTS, changed(**fields), VOCAB)
    assert [p.kind for p in problems] == [kind]
    assert re.search(detail, problems[0].detail), problems[0].detail
    assert judge_malformed(problems).status == status


def test_one_id_for_two_prompts_is_forged_and_a_repeat_is_not() -> None:
    twin = replace(REQUESTS[1], id=REQUESTS[0].id)
    sent = [REQUESTS[0], REQUESTS[0], twin]
    answers = [MODEL.generate(r) for r in sent]
    problems = check_requests(sent, answers, VOCAB)
    assert [(p.kind, p.request_id) for p in problems] == [("duplicate", REQUESTS[0].id)]
    assert judge_malformed(problems).status == "cheating"
    assert check_requests(sent[:2], answers[:2], VOCAB) == []
