"""`measure`: accept length of a checkpoint on answered evaluation prompts, n-gram's beside it."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import torch

from engines.training.accept_length import drafter_walks, ngram_walks, summarise
from engines.training.corpus import Corpus, Ids
from engines.training.devices import device_of, dtype_of
from engines.training.drafter_model import load_model
from engines.training.features import FrozenTarget
from engines.training.record import accept_facts, accept_table, where_and_when, write_json
from engines.training.shards import shard_paths


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--checkpoint", type=Path, required=True, help="the drafter's folder")
    parser.add_argument("--target", type=Path, required=True, help="the target's folder")
    parser.add_argument(
        "--evaluation", type=Path, required=True, help="answered shard file or folder"
    )
    parser.add_argument("--rows", type=int, default=0, help="prompts of each family; 0: all")
    parser.add_argument("--dtype", choices=("bf16", "fp32"), default="fp32")
    parser.add_argument("--device", default=default_device())
    parser.add_argument("--json", type=Path, help="write the figures here")


def run(args: argparse.Namespace) -> int:
    device = device_of(args.device)
    target = FrozenTarget(args.target, device, dtype_of(args.dtype))
    facts = measure(args.checkpoint, target, args.evaluation, args.rows)
    print(accept_table(facts))
    if args.json is not None:
        found = {"accept_length": facts, "dtype": args.dtype, **where_and_when(device)}
        write_json(args.json, found)
    return 0


def measure(
    checkpoint: Path, target: FrozenTarget, evaluation: Path, rows: int = 0
) -> list[dict[str, Any]]:
    """Accept lengths by family (see `record.accept_facts`)."""
    paths = shard_paths(evaluation) if evaluation.is_dir() else [evaluation]
    corpus = Corpus.read(paths, torch.device("cpu"), target.config.max_positions)
    model = load_model(checkpoint)
    ids = first_of_each(corpus, rows)
    walks, _ = drafter_walks(model, target, corpus, ids)
    return accept_facts(
        summarise(walks), summarise(ngram_walks(corpus, ids, model.config.max_drafts))
    )


def first_of_each(corpus: Corpus, rows: int) -> Ids:
    """Ids of the first `rows` sequences of each family; 0: all."""
    if rows < 1:
        return np.arange(len(corpus))
    kept = [np.flatnonzero(corpus.families == i)[:rows] for i in range(len(corpus.family_names))]
    return np.sort(np.concatenate(kept))


def default_device() -> str:
    return "cuda" if torch.cuda.is_available() else "cpu"
