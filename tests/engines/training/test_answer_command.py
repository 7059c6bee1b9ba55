"""The `answer` command: shards against transformers, resume, parts, refusals."""

from __future__ import annotations

import argparse
import random
from pathlib import Path

import pytest
import torch
from transformers import LlamaForCausalLM

from engines.training import answer_command as command
from engines.training.errors import TrainingError
from engines.training.shards import Shard, read_shard, shard_paths, write_shard
from tests.engines.native.tiny import VOCAB, make_folder

NEW = 10
COUNT = 11


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, LlamaForCausalLM]:
    folder = tmp_path_factory.mktemp("target")
    return folder, make_folder(folder)


@pytest.fixture(scope="module")
def prompts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng = random.Random(0)
    ids = [[rng.randrange(2, VOCAB) for _ in range(rng.randint(1, 30))] for _ in range(COUNT)]
    path = tmp_path_factory.mktemp("prompts") / "prompts.safetensors"
    write_shard(
        path, Shard.of(ids, [len(i) for i in ids], [i % 2 for i in range(COUNT)], ("a", "b"))
    )
    return path


def _answer(target: Path, prompts: Path, out: Path, *more: str) -> None:
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    words = f"--shard-size 4 --max-new-tokens {NEW} --device cpu --dtype fp32 --slots 3".split()
    given = ["--target", str(target), "--prompts", str(prompts), "--out", str(out)]
    command.run(parser.parse_args([*given, *words, *more]))


def _sequences(folder: Path) -> list[list[int]]:
    shards = [read_shard(path) for path in shard_paths(folder)]
    return [shard.sequence(i) for shard in shards for i in range(len(shard))]


def test_shards_hold_prompts_and_greedy_answers(
    tmp_path: Path, model: tuple[Path, LlamaForCausalLM], prompts: Path
) -> None:
    folder, reference = model
    _answer(folder, prompts, tmp_path / "out")
    asked = read_shard(prompts)
    paths = shard_paths(tmp_path / "out")
    assert [len(read_shard(path)) for path in paths] == [4, 4, 3]
    families = [f for path in paths for f in read_shard(path).families.tolist()]
    assert families == asked.families.tolist()
    for index, sequence in enumerate(_sequences(tmp_path / "out")):
        ids = asked.prompt(index)
        with torch.no_grad():
            while len(ids) < len(asked.prompt(index)) + NEW and (
                len(ids) == len(asked.prompt(index)) or ids[-1] != 1
            ):
                ids.append(int(reference(torch.tensor([ids])).logits[0, -1].argmax()))
        assert sequence == ids


def test_killed_job_goes_on_where_it_was(
    tmp_path: Path,
    model: tuple[Path, LlamaForCausalLM],
    prompts: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    out = tmp_path / "out"
    written: list[str] = []

    def dies(path: Path, shard: Shard) -> None:
        if len(written) == 1:
            raise KeyboardInterrupt
        written.append(path.name)
        write_shard(path, shard)

    with monkeypatch.context() as patched:
        patched.setattr(command, "write_shard", dies)
        with pytest.raises(KeyboardInterrupt):
            _answer(model[0], prompts, out)
    (first,) = shard_paths(out)
    before = first.stat().st_mtime_ns
    _answer(model[0], prompts, out)
    assert first.stat().st_mtime_ns == before
    _answer(model[0], prompts, tmp_path / "whole")
    assert _sequences(out) == _sequences(tmp_path / "whole")


def test_parts_share_the_job(
    tmp_path: Path, model: tuple[Path, LlamaForCausalLM], prompts: Path
) -> None:
    _answer(model[0], prompts, tmp_path / "out", "--part", "1/2")
    assert [path.name for path in shard_paths(tmp_path / "out")] == ["shard-00001.safetensors"]
    _answer(model[0], prompts, tmp_path / "out", "--part", "0/2")
    assert len(_sequences(tmp_path / "out")) == COUNT


def test_one_file_for_evaluation(
    tmp_path: Path, model: tuple[Path, LlamaForCausalLM], prompts: Path
) -> None:
    out = tmp_path / "evaluation.safetensors"
    _answer(model[0], prompts, out)
    shard = read_shard(out)
    assert len(shard) == COUNT
    assert bool((shard.lengths > shard.prompt_lengths).all())


def test_time_limit_leaves_a_job_to_resume(
    tmp_path: Path, model: tuple[Path, LlamaForCausalLM], prompts: Path
) -> None:
    _answer(model[0], prompts, tmp_path / "out", "--limit-seconds", "0")
    assert not list((tmp_path / "out").glob("*.safetensors"))
    _answer(model[0], prompts, tmp_path / "out")
    assert len(_sequences(tmp_path / "out")) == COUNT


def test_refuses_another_jobs_folder(
    tmp_path: Path, model: tuple[Path, LlamaForCausalLM], prompts: Path
) -> None:
    _answer(model[0], prompts, tmp_path / "out")
    with pytest.raises(TrainingError, match="settings"):
        _answer(model[0], prompts, tmp_path / "out", "--max-new-tokens", "5")
    with pytest.raises(TrainingError, match="--shard-size"):
        _answer(model[0], prompts, tmp_path / "out", "--shard-size", "5")
    with pytest.raises(TrainingError, match="--part"):
        _answer(model[0], prompts, tmp_path / "out", "--part", "2/2")
