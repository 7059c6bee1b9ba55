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
