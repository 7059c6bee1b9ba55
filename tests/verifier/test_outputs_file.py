import json
from pathlib import Path

import pytest

from verifier.errors import OutputsError
from verifier.outputs_file import parse_outputs

GOOD = {"id": "a", "prompt_ids": [1, 2], "output_ids": [3, 4], "finish_reason": "length"}


def write(tmp_path: Path, *lines: object) -> Path:
    path = tmp_path / "outputs.jsonl"
    texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    path.write_text("\n".join(texts) + "\n")
    return path


def test_fields_and_defaults(tmp_path: Path) -> None:
    full = GOOD | {
        "id": "b",
        "finish_reason": "stop",
        "max_new_tokens": 7,
        "stop": ["\n"],
        "stop_token_ids": [4],
        "ignore_eos": True,
    }
    stopped = GOOD | {"id": "c", "finish_reason": "stop"}
    answers = parse_outputs(write(tmp_path, GOOD, "", full, stopped), 64)
    first, second, third = (a.request for a in answers)
    assert (first.max_new_tokens, second.max_new_tokens, third.max_new_tokens) == (2, 7, 64)
    assert second.stop == ("\n",) and second.stop_token_ids == (4,) and second.ignore_eos
    assert answers[0].output_ids == (3, 4) and first.prompt_ids == (1, 2)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("{", "not JSON"),
        ([1], "not a JSON object"),
        ({k: v for k, v in GOOD.items() if k != "output_ids"}, "'output_ids' is missing"),
        (GOOD | {"output_id": [3]}, "did you mean 'output_ids'"),
        (GOOD | {"output_ids": [3, "x"]}, "'output_ids' is"),
        (GOOD | {"output_ids": [3, True]}, "'output_ids' is"),
        (GOOD | {"output_ids": [3, -1]}, "'output_ids' is"),
        (GOOD | {"output_ids": "34"}, "'output_ids' is"),
        (GOOD | {"prompt_ids": []}, "'prompt_ids' is"),
        (GOOD | {"prompt_ids": None}, "'prompt_ids' is null"),
        (GOOD | {"finish_reason": "abort"}, "'finish_reason' is \"abort\""),
        (GOOD | {"max_new_tokens": 2.5}, "'max_new_tokens' is 2.5"),
        (GOOD | {"max_new_tokens": -1}, "'max_new_tokens' is -1"),
        (GOOD | {"ignore_eos": 1}, "'ignore_eos' is 1"),
        (GOOD | {"stop": "x"}, "'stop' is"),
        (GOOD | {"stop_token_ids": 2}, "'stop_token_ids' is 2"),
        (GOOD | {"id": 5}, "'id' is 5"),
        (GOOD | {"id": "first"}, "used on line 1"),
    ],
)
def test_errors_name_line_and_field(tmp_path: Path, line: object, words: str) -> None:
    path = write(tmp_path, GOOD | {"id": "first"}, line)
    with pytest.raises(OutputsError) as error:
        parse_outputs(path, 64)
    assert "outputs.jsonl:2: " in str(error.value) and words in str(error.value)


def test_deep_nesting_is_a_wrong_line(tmp_path: Path) -> None:
    path = tmp_path / "deep.jsonl"
    path.write_text("[" * 100_000)
    with pytest.raises(OutputsError, match=r"deep\.jsonl:1: not JSON"):
        parse_outputs(path, 64)


def test_only_a_newline_ends_a_line(tmp_path: Path) -> None:
    path = tmp_path / "odd.jsonl"
    path.write_text(json.dumps(GOOD | {"stop": ["a\u2028b"]}, ensure_ascii=False), encoding="utf-8")
    assert parse_outputs(path, 64)[0].request.stop == ("a\u2028b",)


def test_nothing_to_read(tmp_path: Path) -> None:
    with pytest.raises(OutputsError, match="no answers"):
        parse_outputs(write(tmp_path, ""), 64)
    with pytest.raises(OutputsError, match="absent"):
        parse_outputs(tmp_path / "absent.jsonl", 64)
