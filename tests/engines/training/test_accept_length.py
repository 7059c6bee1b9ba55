"""Accept lengths against the engine's own counts, and a drafter that learns to draft."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from engines.training.__main__ import main
from engines.training.accept_length import Walk, drafter_walks, ngram_walks, summarise, walk
from engines.training.calibration import calibrate
from engines.training.corpus import Corpus
from engines.training.drafter_model import load_model
from engines.training.record import write_checkpoint
from engines.training.shards import Shard, write_shard
from engines.training.train_command import make_trainer
from engines.training.trainer import Places
from native_engine.drafters.config import DrafterConfig
from native_engine.drafters.load import load_drafter
from native_engine.requests import GenerateRequest
from native_engine.targets.load import load_target
from tests.engines.native.batching.harness import ask, batch_engine, ngram, scheduling
from tests.engines.training.small import (
    CPU,
    KINDS,
    MASK,
    SMALL,
    frozen,
    raw_config,
    sequences,
    shard,
    target_folder,
)

NEW_TOKENS = 20


def own_answers(folder: Path, count: int) -> Corpus:
    """The target's greedy answers, by the engine without a drafter; ends at id 5 or by length."""
    prompts = [ids[:n] for ids, n in zip(*sequences(count, lambda token: 3, seed=5), strict=True)]
    engine = batch_engine(load_target(folder, torch.float32, CPU))
    made = []
    with scheduling(engine) as scheduler:
        asked = [ask(scheduler, request(prompt)) for prompt in prompts]
        for prompt, one in zip(prompts, asked, strict=True):
            made.append([*prompt, *one.result().output_ids])
    lengths = [len(prompt) for prompt in prompts]
    return Corpus.of(
        [Shard.of(made, lengths, [0] * count, ("all",))], CPU, max_length=99, least_answer=1
    )


def request(prompt: list[int]) -> GenerateRequest:
    return GenerateRequest("r", tuple(prompt), NEW_TOKENS, frozenset({5, 6, 7}))


@pytest.mark.parametrize("name", ["dflash2", "dspark", "ngram"])
def test_counts_are_the_engines(tmp_path: Path, name: str) -> None:
    folder = target_folder(tmp_path / "target")
    data = own_answers(folder, 12)
    ids = np.arange(len(data))
    target = frozen(folder)
    if name == "ngram":
        walks, drafter = ngram_walks(data, ids, 7), ngram()
    else:
        # Trained on these very answers, so that drafts are accepted at every length.
        options = replace(KINDS[name], steps=60, batch=12, anchors=16, reuse=4, lr=2e-3)
        raw = raw_config(folder, options)
        trainer = make_trainer(options, raw, target, data, ids, Places(tmp_path / "run"))
        trainer.run()
        write_checkpoint(tmp_path / "drafter", raw, trainer.exported())
        walks, _ = drafter_walks(load_model(tmp_path / "drafter"), target, data, ids)
        drafter = load_drafter(
            tmp_path / "drafter", load_target(folder, torch.float32, CPU), torch.float32, CPU
        )
    engine = batch_engine(load_target(folder, torch.float32, CPU), drafter=drafter)
    with scheduling(engine) as scheduler:
        for i, found in zip(ids, walks, strict=True):
            sequence, prompt = data.sequence(i), int(data.prompt_lengths[i])
            result = ask(scheduler, request(sequence[:prompt])).result()
            assert result.output_ids == sequence[prompt:]
            assert found.steps == result.steps
            assert found.tokens == len(result.output_ids)
    overall = summarise(walks)[0]
    lengths = {taken for found in walks for taken in found.lengths}
    assert len(lengths) > (1 if name == "ngram" else 3)
    steps, tokens = sum(w.steps for w in walks if w.steps), sum(w.tokens for w in walks if w.steps)
    assert overall.engine_mean == pytest.approx(tokens / steps)
    assert overall.low <= overall.mean <= overall.high


def test_a_walk_counts_what_a_verify_loop_commits() -> None:
    answer = [10, 11, 12, 13, 14, 15]
    drafts = {10: [11, 12, 99], 13: [14, 15, 16]}
    found = walk([1, 2], answer, 3, lambda context: drafts[context[-1]], "f")
    assert (found.steps, found.anchors, found.lengths) == (2, [0, 3], [2, 2])
    assert found.reached == [2, 2, 1] and found.accepted == [2, 2, 0]
    only = summarise([found, Walk("g", 1)])
    assert only[0].mean == 2.5 and only[0].engine_mean == 3.0
    assert only[0].by_slot == [1.0, 1.0, 0.0]
    assert only[2].family == "g" and only[2].prompts == 0


def test_confidences_are_calibrated_on_whole_drafts_alone() -> None:
    generator = torch.Generator().manual_seed(0)
    walks, logits = [], []
    for _ in range(300):
        true = torch.randn(12, 3, generator=generator)
        taken = (torch.rand(12, 3, generator=generator) < torch.sigmoid(true)).long()
        lengths = taken.cumprod(1).sum(1).tolist()
        walks.append(Walk("f", 40, 12, anchors=list(range(0, 36, 3)), lengths=lengths))
        logits.append(2.0 * true)
    walks[0].anchors[-1] = 38
    found = calibrate(walks, logits)
    assert found is not None and found.blocks == 300 * 12 - 1
    assert found.temperatures == pytest.approx([2.0] * 3, rel=0.35)
    assert max(found.error_after) < 0.03 < max(found.error_before)
    assert calibrate([], []) is None


@pytest.mark.parametrize("kind", ["dflash2", "dspark"])
def test_the_command_trains_a_drafter_that_drafts(
    tmp_path: Path, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    target = target_folder(tmp_path / "target")
    for i in range(2):
        write_shard(tmp_path / "data" / f"shard-0000{i}.safetensors", shard(60, i))
    write_shard(tmp_path / "evaluation.safetensors", shard(8, 77))
    # From the anchor alone slot k is a k-fold permutation of it.
    options = f"--kind {kind} --steps 110 --batch 12 --anchors 12 --layers 1 --intermediate 64 "
    options += f"--taps 0,2 --block 4 --lr 4e-3 --mask-token {MASK} --held-out 12 "
    options += "--selector-rank 8 --markov-rank 16 --conv-group 16 --device cpu"
    paths = (
        f"--target {target} --data {tmp_path}/data --evaluation {tmp_path}/evaluation.safetensors"
    )
    out = tmp_path / "out"
    assert main(["train", *options.split(), *paths.split(), "--out", str(out)]) == 0
    found = json.loads((out / "training.json").read_text())
    rows = {row["family"]: row for row in found["accept_length"]}
    assert rows["all"]["drafter"]["mean"] > 1.8 > 1.6 > rows["all"]["ngram"]["mean"]
    assert found["data"]["by_family"]["digits"]["sequences"] == 60
    assert len(found["data"]["shards"]) == 2 and found["steps"] == 110
    config = DrafterConfig.from_folder(out)
    assert (len(config.temperatures) == 4) == (kind == "dspark")
    assert not (out / "training-state.pt").exists()
    capsys.readouterr()
    measured = ["measure", "--checkpoint", str(out), *paths.split()[:2], *paths.split()[4:]]
    measured += ["--rows", "2", "--json", str(tmp_path / "m.json"), "--device", "cpu"]
    assert main(measured) == 0
    assert "digits" in capsys.readouterr().out
    table = json.loads((tmp_path / "m.json").read_text())["accept_length"]
    assert [row["drafter"]["prompts"] for row in table] == [4, 2, 2]


def test_a_plan_of_tries_runs_each_and_records_failures(tmp_path: Path) -> None:
    target = target_folder(tmp_path / "target")
    write_shard(tmp_path / "data" / "shard-00000.safetensors", shard(20))
    write_shard(tmp_path / "evaluation.safetensors", shard(4, 77))
    plan = tmp_path / "plan.toml"
    plan.write_text(
        f"[defaults]\nsteps = 2\nbatch = 4\nanchors = 4\nlayers = 1\nintermediate = 16\n"
        f'taps = "0"\nmask_token = {MASK}\nselector_rank = 4\n'
        '[[try]]\nname = "wide"\nintermediate = 32\n'
        '[[try]]\nname = "broken"\ntaps = "7"\n'
    )
    command = f"tries --plan {plan} --target {target} --data {tmp_path}/data --gpu cpu --rows 1 "
    command += f"--evaluation {tmp_path}/evaluation.safetensors --out {tmp_path}/tries"
    assert main(command.split()) == 0
    assert main(command.split()) == 0
    lines = [json.loads(x) for x in (tmp_path / "tries" / "tries.jsonl").read_text().splitlines()]
    assert [line["name"] for line in lines] == ["wide", "broken"]
    assert lines[0]["changed"] == {"intermediate": 32} and lines[0]["steps"] == 2
    assert set(lines[0]["accept_length"]) == {"all", "digits", "letters"}
    assert "taps" in lines[1]["failed"] or "layer" in lines[1]["failed"]
    plan.write_text('[[try]]\nname = "x"\nlayer = 2\n')
    assert main(command.split()) == 2
    assert SMALL.tap_ids == [0, 2]
