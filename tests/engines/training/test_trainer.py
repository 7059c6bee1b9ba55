"""Runs: resumed exactly, ended in time, refused by name; a drafter that learns."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from engines.training.checkpoint import load_state
from engines.training.corpus import split
from engines.training.drafter_model import DrafterModel
from engines.training.errors import TrainingError
from engines.training.options import TrainOptions, read_options
from engines.training.pace import Pace
from engines.training.record import write_checkpoint
from engines.training.train_command import make_trainer
from engines.training.trainer import Places, Trainer
from native_engine.errors import ConfigError
from tests.engines.training.small import (
    CPU,
    KINDS,
    SMALL,
    corpus,
    frozen,
    raw_config,
    target_folder,
)


def trainer(folder: Path, target: Path, options: TrainOptions, log: Path | None = None) -> Trainer:
    data = corpus(40)
    ids, _ = split(data, options.held_out, options.seed)
    places = Places(folder, log, state_every_s=1e9, report_every_s=0.0)
    return make_trainer(options, raw_config(target, options), frozen(target), data, ids, places)


@pytest.mark.parametrize("name", ["dflash2", "dspark"])
def test_a_killed_and_resumed_run_ends_with_the_same_weights(tmp_path: Path, name: str) -> None:
    target = target_folder(tmp_path / "target")
    options = replace(KINDS[name], ema=0.9, l1=0.1, muon=1.0 if name == "dspark" else 0.0)
    whole = trainer(tmp_path / "whole", target, options, tmp_path / "log.jsonl")
    whole.run()
    trainer(tmp_path / "cut", target, options).run(stop_at=5)
    trainer(tmp_path / "cut", target, options).run(stop_at=7)
    resumed = trainer(tmp_path / "cut", target, options)
    resumed.run()
    assert resumed.progress.step == whole.progress.step == options.steps
    for weights in ("exported", "state_dict"):
        one, other = (
            t.exported() if weights == "exported" else t.model.state_dict()
            for t in (whole, resumed)
        )
        assert all(torch.equal(one[key], other[key]) for key in one)
    exported, last = whole.exported(), whole.model.state_dict()
    assert not torch.equal(exported["fc.weight"], last["fc.weight"])
    # The scale of the taps that training works on is in the exported matrix.
    plain, model = DrafterModel(whole.model.config), whole.model
    model.load_state_dict({**exported, "fc.weight": exported["fc.weight"] / model.tap_scale})
    plain.load_state_dict(exported)
    batch, seen = whole.features.at(0)
    block = whole.target.embed(batch.tokens[:, None, : model.config.block_size])
    anchor = batch.prompt_lengths[:, None]
    torch.testing.assert_close(plain(seen.taps, anchor, block), model(seen.taps, anchor, block))
    lines = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == list(range(1, options.steps + 1))
    assert lines[-1]["loss"] < lines[0]["loss"]


def test_a_state_of_other_options_or_a_broken_one_is_refused(tmp_path: Path) -> None:
    target = target_folder(tmp_path / "target")
    trainer(tmp_path / "run", target, SMALL).run(stop_at=2)
    with pytest.raises(TrainingError, match="another lr, seed"):
        trainer(tmp_path / "run", target, replace(SMALL, lr=1.0, seed=3)).run()
    (tmp_path / "run" / "training-state.pt").write_bytes(b"cut")
    with pytest.raises(TrainingError, match="Delete it to begin anew"):
        load_state(tmp_path / "run", SMALL, CPU)


def test_a_loss_that_is_no_number_ends_the_run(tmp_path: Path) -> None:
    target = target_folder(tmp_path / "target")
    run = trainer(tmp_path / "run", target, SMALL)
    run.model.fc.weight.data.fill_(float("nan"))
    with pytest.raises(TrainingError, match="the loss is not a number"):
        run.run()


def test_minutes_become_steps_and_late_ones_are_cut(tmp_path: Path) -> None:
    pace = Pace.of(replace(SMALL, steps=0, minutes=1.0))
    assert pace.measures and pace.lr(0) > 0
    pace.fix(40, seconds_a_step=0.02, spent_s=4.0)
    assert pace.total == 40 + 2800 and not pace.done(2839) and pace.done(2840)
    rates = [pace.lr(step) for step in range(2840)]
    assert rates.index(max(rates)) == pytest.approx(0.04 * 2840, abs=2)
    assert rates[-1] == pytest.approx(0.1 * SMALL.lr, rel=0.01)
    pace.keep(1000, seconds_a_step=0.0205, spent_s=23.0)
    assert pace.total == 2840
    pace.keep(1000, seconds_a_step=0.04, spent_s=24.0)
    assert pace.total == 1900 and pace.planned_late == 1
    timed = trainer(
        tmp_path / "run", target_folder(tmp_path / "t"), replace(SMALL, steps=0, minutes=0.02)
    )
    timed.run()
    assert timed.pace.total == timed.progress.step > 40
    assert timed.progress.spent_s < 6


def test_options_name_what_is_wrong() -> None:
    for changed, match in (
        ({"kind": "eagle"}, "--kind eagle. It must be one of dflash2, dspark"),
        ({"taps": "1,x"}, "layer ids with commas"),
        ({"steps": "9"}, "steps='9'"),
        ({"layer": 3}, "no option 'layer'"),
        ({"minutes": 0}, "--minutes 0"),
    ):
        with pytest.raises(TrainingError, match=match):
            read_options(changed, "plan")
    assert read_options({"lr": 1}).lr == 1


def test_a_run_goes_on_from_a_checkpoint_of_its_own_shapes(tmp_path: Path) -> None:
    target = target_folder(tmp_path / "target")
    first = trainer(tmp_path / "first", target, SMALL)
    first.run()
    raw = raw_config(target, SMALL)
    write_checkpoint(tmp_path / "made", raw, first.exported())
    again = trainer(tmp_path / "again", target, replace(SMALL, init=str(tmp_path / "made")))
    for name, weights in first.exported().items():
        torch.testing.assert_close(again.exported()[name], weights, rtol=1e-2, atol=1e-3)
    other = replace(SMALL, intermediate=SMALL.intermediate * 2, init=str(tmp_path / "made"))
    with pytest.raises(ConfigError, match="not those of this run"):
        trainer(tmp_path / "other", target, other)
