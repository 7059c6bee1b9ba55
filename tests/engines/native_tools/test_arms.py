"""Arms in turns: counts are the single path's, answers go to the verifier, mistakes are named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from native_engine.config import EngineConfig, SpeculationKnobs
from native_engine.engine import load_engine
from native_engine.requests import GenerateRequest
from native_tools.arms import Arm, main, report
from tests.engines.native.batching.full_forward import full_forward_greedy
from tests.engines.native.batching.test_parallel_drafters import DRAFTERS, drafter_folder
from tests.engines.native.tiny import VOCAB, make_folder
from verifier.outputs_file import parse_outputs

TOKENS, ROOM = 14, 64
PROMPTS = [
    tuple((7 * i * j + 5 * j + i) % (VOCAB - 3) + 2 for j in range(3 + 4 * i)) for i in range(4)
]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    folder = tmp_path_factory.mktemp("tiny")
    for name, raw in DRAFTERS.items():
        drafter_folder(folder / name, raw, 96, 3)
    write(folder / "prompts.jsonl", PROMPTS)
    return folder, make_folder(folder)


def write(path: Path, prompts: Any) -> None:
    lines = [{"id": f"p{i}", "prompt_ids": list(ids)} for i, ids in enumerate(prompts)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def flags(folder: Path, *arms: str, prompts: Path | None = None) -> list[str]:
    found = ["--model-dir", str(folder), "--prompts", str(prompts or folder / "prompts.jsonl")]
    found += ["--dtype", "fp32", "--tokens", str(TOKENS), "--max-total-tokens", str(ROOM)]
    return [*found, *(word for arm in arms for word in ("--arm", arm))]


def single_accept_length(folder: Path, drafter: str, draft_tokens: int) -> float:
    knobs = EngineConfig(speculation=SpeculationKnobs(drafter, draft_tokens))
    where = str(folder / drafter) if drafter in DRAFTERS else None
    engine = load_engine(folder, knobs, "fp32", ROOM, draft_model_dir=where)
    results = [engine.run(GenerateRequest("r", ids, TOKENS)) for ids in PROMPTS]
    steps = sum(result.steps for result in results)
    return (steps + sum(result.accepted for result in results)) / steps


def test_counts_are_the_single_paths_and_answers_are_verifiable(
    model: tuple[Path, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, reference = model
    truth = [full_forward_greedy(reference, list(ids), TOKENS) for ids in PROMPTS]
    arms = ["ar", "lookup:drafter=ngram,draft_tokens=5"]
    arms += [f"{name}:drafter={name},draft_dir={folder / name},draft_tokens=4" for name in DRAFTERS]
    out, stop = tmp_path / "answers.jsonl", truth[1][6]
    assert main([*flags(folder, *arms), "--out", str(out)]) == 0
    found = json.loads(capsys.readouterr().out)["arms"]
    assert list(found) == ["ar", "lookup", "dflash", "dspark"]
    assert found["ar"]["accept_length"] == 1.0
    for arm, most in (("lookup", 5), ("dflash", 4), ("dspark", 4)):
        expected = single_accept_length(folder, arm.replace("lookup", "ngram"), most)
        assert found[arm]["accept_length"] == pytest.approx(expected, abs=1e-4)
    for arm in found.values():
        assert (arm["answers"], arm["same_as_first_arm"]) == (4, 4)
        assert arm["tokens"] == 4 * TOKENS and arm["tokens_per_s"] > 0
    answers = parse_outputs(out, 1)
    assert [list(answer.output_ids) for answer in answers] == 4 * truth
    assert {answer.finish_reason for answer in answers} == {"length"}
    assert all(answer.request.ignore_eos for answer in answers)
    assert main([*flags(folder, "ar"), "--stop", str(stop), "--limit", "2", "--out", str(out)]) == 0
    last = parse_outputs(out, 1)
    assert len(last) == 2 and last[1].finish_reason == "stop"
    assert list(last[1].output_ids) == truth[1][: truth[1].index(stop) + 1]
    assert last[1].request.stop_token_ids == (stop,) and not last[1].request.ignore_eos


def test_equal_answers_are_counted() -> None:
    first, second = (Arm(name, engine=None) for name in "ab")  # type: ignore[arg-type]
    first.answers, second.answers = [[1, 2], [3], [4]], [[1, 2], [3, 3], [4]]
    first.rates = second.rates = [1.0, 5.0, 2.0]
    second.steps, second.stepped = 4, 6
    found = report([first, second])
    assert (found["a"]["same_as_first_arm"], found["b"]["same_as_first_arm"]) == (3, 2)
    assert (found["a"]["accept_length"], found["b"]["accept_length"]) == (None, 1.5)
    assert found["b"]["tokens_per_s"] == 2.0 and found["b"]["tokens"] == 5


@pytest.mark.parametrize(
    ("arms", "told"),
    [
        (["x:drafer=ngram"], ["--arm x", "'drafer'", "did you mean 'drafter'"]),
        (["x:drafter"], ["--arm x", "drafter=VALUE"]),
        (["x:draft_tokens=many"], ["--arm x", "draft_tokens=NUMBER"]),
        (["x:drafter=ngram,draft_tokens=0"], ["--arm x", "draft_tokens must be at least 1"]),
        (["x:drafter=ngrm"], ["--arm x", "did you mean 'ngram'"]),
        (["x:drafter=dspark"], ["--arm x", "give --draft-model-dir"]),
        (["x:drafter=dspark,draft_dir=nowhere"], ["--arm x", "nowhere"]),
        (["x:linear=pack"], ["--arm x", "did you mean 'packed'"]),
        (["x", "x:linear=plain"], ["a name of its own"]),
    ],
)
def test_a_bad_arm_is_named(
    model: tuple[Path, Any], arms: list[str], told: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(flags(model[0], *arms)) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and all(word in error for word in told)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (None, "No such file"),
        ("", "no prompt in it"),
        ('{"id": "a", "prompt_ids": [3]}\n{"id": "b"', ":2: "),
        ('{"id": "a"}', ":1: "),
        ('{"id": "a", "prompt_ids": ["x"]}', ":1: "),
        ('{"id": 7, "prompt_ids": [3]}', ":1: "),
        ("[3]", ":1: "),
        ('{"id": "a b", "prompt_ids": [' + "3, " * 60 + "3]}", "'a b': max_new_tokens: 61 prompt"),
        ('{"id": "none", "prompt_ids": []}', "'none': input_ids"),
        ('{"id": "far", "prompt_ids": [3, 97]}', "'far': token ids from 0 to 96"),
    ],
)
def test_a_bad_prompts_file_is_named(
    model: tuple[Path, Any],
    content: str | None,
    told: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = tmp_path / "given.jsonl"
    if content is not None:
        path.write_text(content)
    assert main(flags(model[0], "ar", prompts=path)) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and told in error
    assert str(path) in error or "prompt '" in error


def test_a_bad_folder_and_an_unwritable_file_are_named(
    model: tuple[Path, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = flags(tmp_path / "gone", "ar", prompts=model[0] / "prompts.jsonl")
    assert main(bad) == 2
    assert "gone" in capsys.readouterr().err
    missing = tmp_path / "no" / "out.jsonl"
    assert main([*flags(model[0], "ar"), "--limit", "1", "--out", str(missing)]) == 2
    assert str(missing) in capsys.readouterr().err
