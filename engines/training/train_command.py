"""`train`: one drafter from shards to a checkpoint with its record."""

from __future__ import annotations

import argparse
import shlex
import sys
import time
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import torch

from engines.training.accept_length import drafter_walks
from engines.training.calibration import calibrate
from engines.training.checkpoint import clear_state
from engines.training.corpus import PADDING, BatchOrder, Corpus, Ids, split
from engines.training.devices import device_of, dtype_of
from engines.training.drafter_config import checked_config, config_json
from engines.training.drafter_model import DrafterModel, load_model
from engines.training.features import CachedFeatures, FrozenTarget
from engines.training.measure_command import default_device, measure
from engines.training.options import TrainOptions, add_options, read_options
from engines.training.record import (
    accept_table,
    data_facts,
    where_and_when,
    write_checkpoint,
    write_json,
)
from engines.training.shards import shard_paths
from engines.training.trainer import Places, Trainer
from native_engine.targets.hf_config import HfConfig


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--target", type=Path, required=True, help="the target's folder")
    parser.add_argument("--data", type=Path, required=True, help="folder of answered shards")
    parser.add_argument("--out", type=Path, required=True, help="the checkpoint's folder")
    parser.add_argument(
        "--evaluation", type=Path, help="answered shard file or folder to measure on"
    )
    parser.add_argument("--rows", type=int, default=0, help="its prompts of each family; 0: all")
    parser.add_argument("--state", type=Path, help="where an unfinished run is kept (default: out)")
    parser.add_argument("--log", type=Path, help="append a JSON line at each report")
    parser.add_argument("--device", default=default_device())
    parser.add_argument("--dtype", choices=("bf16", "fp32"), help="bf16 on CUDA, fp32 on CPU")
    add_options(parser)


def run(args: argparse.Namespace) -> int:
    began = time.monotonic()
    options = read_options({f.name: getattr(args, f.name) for f in fields(TrainOptions)})
    device = device_of(args.device)
    dtype = dtype_of(args.dtype or ("bf16" if device.type == "cuda" else "fp32"))
    raw = config_json(options, HfConfig.from_folder(args.target).raw)
    target = FrozenTarget(args.target, device, dtype)
    corpus = Corpus.read(shard_paths(args.data), device, options.max_length)
    ids, held_out = split(corpus, options.held_out, options.seed)
    trainer = make_trainer(
        options,
        raw,
        target,
        corpus,
        ids,
        Places(args.state or args.out, args.log),
    )
    parameters = sum(p.numel() for p in trainer.model.parameters())
    answers = int((corpus.lengths - corpus.prompt_lengths)[ids].sum())
    print(
        f"{options.kind}: {parameters:,} parameters, {len(ids):,} sequences, "
        f"{answers:,} answer tokens, {time.monotonic() - began:.0f} s to load",
        flush=True,
    )
    trainer.run()
    size = write_checkpoint(args.out, raw, trainer.exported())
    found: dict[str, Any] = {
        "command": shlex.join(["python", "-m", "engines.training", *sys.argv[1:]]),
        "options": asdict(options),
        "parameters": parameters,
        "bytes": size,
        "steps": trainer.progress.step,
        "steps_cut": trainer.pace.planned_late,
        "training_s": round(trainer.progress.spent_s, 1),
        "at_the_end": trainer.progress.last,
        "data": data_facts(corpus),
        **where_and_when(device),
    }
    write_json(args.out / "training.json", found)
    del trainer
    exact = FrozenTarget(args.target, device, torch.float32)
    if options.kind == "dspark" and options.confidence > 0 and len(held_out):
        found["calibration"] = _calibrated(args.out, raw, exact, corpus, held_out)
    if args.evaluation is not None:
        facts = measure(args.out, exact, args.evaluation, args.rows)
        found |= {"accept_length": facts, "accept_length_dtype": "fp32"}
        print(accept_table(facts), flush=True)
    found["total_s"] = round(time.monotonic() - began, 1)
    write_json(args.out / "training.json", found)
    clear_state(args.state or args.out)
    return 0


def make_trainer(
    options: TrainOptions,
    raw: dict[str, Any],
    target: FrozenTarget,
    corpus: Corpus,
    ids: Ids,
    places: Places,
) -> Trainer:
    """A new drafter for `target`, to be trained on sequences `ids` of `corpus`."""
    config = checked_config(raw)
    torch.manual_seed(options.seed)
    model = DrafterModel(config)
    # The head is the target's, so its input begins on the target's scale.
    model.norm.weight.data.copy_(target.final_norm)
    model.to(target.device)
    order = BatchOrder(ids, corpus.lengths, options.batch, options.seed)
    sample = corpus.batch(order[0])
    # The first token is an attention sink whose activations are a hundred times the others'.
    position = torch.arange(sample.tokens.shape[1], device=target.device)
    usual = (position > 0) & (position < sample.lengths[:, None])
    model.scale_taps(target.features(sample.tokens, config.taps).taps[usual])
    if options.init:
        model.start_from(Path(options.init))
    elif options.layers_of:
        model.take_layers_of(Path(options.layers_of))
    longest = -(-int(corpus.lengths[ids].max()) // PADDING) * PADDING
    features = CachedFeatures(
        corpus,
        order,
        target,
        config.taps,
        final=options.needs_target_distribution,
        reuse=options.reuse,
        batch_tokens=min(options.batch, len(ids)) * longest,
        cache_tokens=options.cache_tokens,
    )

    def say(line: str) -> None:
        print(line, flush=True)

    return Trainer(options, model, target, features, places, say)


def _calibrated(
    out: Path, raw: dict[str, Any], target: FrozenTarget, corpus: Corpus, held_out: Ids
) -> dict[str, Any] | None:
    """Fit the confidence head's temperatures and write them into the checkpoint."""
    walks, logits = drafter_walks(load_model(out), target, corpus, held_out)
    found = calibrate(walks, logits)
    if found is None:
        return None
    raw["dflash_config"]["confidence_temperatures"] = [round(t, 4) for t in found.temperatures]
    write_json(out / "config.json", raw)
    return asdict(found)
