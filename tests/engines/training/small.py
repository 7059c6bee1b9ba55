"""A tiny target folder, made-up corpora, and a small drafter's options for them."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from engines.training.corpus import Corpus
from engines.training.drafter_config import config_json
from engines.training.drafter_model import DrafterModel
from engines.training.features import FrozenTarget
from engines.training.options import TrainOptions
from engines.training.shards import Shard
from native_engine.drafters.config import DrafterConfig
from native_engine.targets.hf_config import HfConfig
from tests.engines.native.drafters.synthetic import random_weights
from tests.engines.native.tiny import VOCAB, make_folder

CPU = torch.device("cpu")
MASK = VOCAB - 1
SMALL = TrainOptions(
    layers=2,
    intermediate=64,
    taps="0,2",
    block=5,
    selector_rank=8,
    selector_top_k=4,
    markov_rank=8,
    mask_token=MASK,
    steps=12,
    batch=4,
    anchors=6,
    cache_tokens=600,
    held_out=4,
    lr=3e-3,
    chunk_rows=64,
)
KINDS = {
    "dflash2": SMALL,
    "dspark": replace(SMALL, kind="dspark", block=4),
    "causal": replace(SMALL, causal=True),
}


def target_folder(folder: Path, seed: int = 0) -> Path:
    make_folder(folder, seed=seed)
    return folder


def raw_config(folder: Path, options: TrainOptions) -> dict[str, Any]:
    return config_json(options, HfConfig.from_folder(folder).raw)


def random_model(raw: dict[str, Any], seed: int = 0) -> DrafterModel:
    """Wide random weights, so that every module matters."""
    model = DrafterModel(DrafterConfig.from_mapping(raw))
    model.load_state_dict(random_weights(raw, seed))
    return model


def sequences(
    count: int, follow: Callable[[int], int], seed: int = 0
) -> tuple[list[list[int]], list[int]]:
    """Random prompts, then answers in which `follow` says each next token; and prompt lengths."""
    generator = random.Random(seed)
    made, prompts = [], []
    for _ in range(count):
        prompt = [generator.randrange(2, MASK) for _ in range(generator.randint(3, 9))]
        ids = list(prompt)
        for _ in range(generator.randint(6, 40)):
            ids.append(follow(ids[-1]))
        made.append(ids)
        prompts.append(len(prompt))
    return made, prompts


def shard(count: int = 40, seed: int = 0, follow: Callable[[int], int] | None = None) -> Shard:
    """Answers of a fixed permutation of the ids: learnable from the last token alone."""
    table = list(range(2, MASK))
    random.Random(99).shuffle(table)
    made, prompts = sequences(count, follow or (lambda token: table[token - 2]), seed)
    families = [i % 2 for i in range(count)]
    return Shard.of(made, prompts, families, ("letters", "digits"), {"seed": str(seed)})


def corpus(count: int = 40, seed: int = 0) -> Corpus:
    return Corpus.of([shard(count, seed)], CPU, 704)


def frozen(folder: Path) -> FrozenTarget:
    return FrozenTarget(folder, CPU, torch.float32)
