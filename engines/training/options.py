"""Every option of one training run: a field here is a flag of `train` and a key of a tries plan."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from engines.training.errors import TrainingError

KINDS = ("dflash2", "dspark")
WEIGHTS = ("decay", "accept", "expected")
CONFIDENCE_LABELS = ("greedy", "overlap")


def _option(default: Any, text: str, choices: tuple[str, ...] | None = None) -> Any:
    return field(default=default, metadata={"help": text, "choices": choices})


@dataclass(frozen=True)
class TrainOptions:
    """What is trained and how; files and devices apart."""

    kind: str = _option("dflash2", "the drafter's architecture", KINDS)
    layers: int = _option(3, "draft layers")
    intermediate: int = _option(1024, "width of their MLP")
    taps: str = _option("1,8,15,22,28", "target layers whose outputs are the context features")
    block: int = _option(0, "rows of a block; 0: 8 for dflash2, 7 for dspark")
    causal: bool = _option(False, "a block's row sees no later one")
    selector_rank: int = _option(32, "rank of the candidate selector (dflash2)")
    selector_top_k: int = _option(16, "candidates of a slot (dflash2)")
    conv_group: int = _option(16, "channels that share a dynamic kernel (dflash2)")
    markov_rank: int = _option(32, "rank of the Markov head (dspark)")
    mask_token: int = _option(16, "id that fills a block's open slots: one the target never writes")

    init: str = _option("", "folder of a checkpoint of the same shapes to go on from")
    layers_of: str = _option(
        "", "folder of a checkpoint of the other kind whose layers to begin with"
    )
    steps: int = _option(0, "optimiser steps; 0: as many as fit in `minutes`")
    minutes: float = _option(7.0, "minutes of training where `steps` is 0")
    batch: int = _option(32, "sequences a step")
    anchors: int = _option(64, "blocks of a sequence a step")
    reuse: int = _option(2, "passes over a group of cached target features")
    cache_tokens: int = _option(200_000, "tokens whose target features are cached at once")
    max_length: int = _option(704, "longer sequences are left out")
    held_out: int = _option(256, "sequences kept out of training, for calibration")
    seed: int = _option(0, "of initial weights, order and anchors")

    lr: float = _option(6e-4, "largest learning rate")
    table_lr: float = _option(1.0, "of the selector's or Markov head's tables, as a multiple of it")
    muon: float = _option(0.0, "rate of Muon for the layers' matrices, as a multiple; 0: AdamW")
    warmup: float = _option(0.04, "share of the steps with a rising learning rate")
    min_lr: float = _option(0.1, "last learning rate as a share of the largest (cosine)")
    clip: float = _option(1.0, "largest norm of the gradient")
    ema: float = _option(0.0, "decay of the averaged weights that are exported; 0: the last ones")

    weights: str = _option("decay", "how slots are weighted in the loss", WEIGHTS)
    gamma: float = _option(4.0, "slot k weighs exp(-(k - 1) / gamma)")
    ce: float = _option(1.0, "weight of the cross entropy")
    soft: float = _option(0.0, "share of the target's distribution in the cross entropy's labels")
    l1: float = _option(0.0, "weight of |p_draft - p_target| (published for dspark: 0.9, ce 0.1)")
    selector: float = _option(1.0, "weight of the selector's cross entropy (dflash2)")
    confidence: float = _option(1.0, "weight of the confidence head's cross entropy (dspark)")
    confidence_label: str = _option(
        "greedy", "what it predicts: the draft is the answer's token, or the overlap of "
        "distributions", CONFIDENCE_LABELS,
    )  # fmt: skip
    confidence_detach: bool = _option(False, "the confidence loss changes its head alone")
    chunk_rows: int = _option(3584, "rows of logits at once in the loss")
    compile: bool = _option(False, "compile the layers' row-wise parts")

    def __post_init__(self) -> None:
        for name, known in (
            ("kind", KINDS),
            ("weights", WEIGHTS),
            ("confidence_label", CONFIDENCE_LABELS),
        ):
            if getattr(self, name) not in known:
                self._refuse(name, f"one of {', '.join(known)}")
        for name in ("layers", "intermediate", "batch", "anchors", "reuse", "chunk_rows"):
            if getattr(self, name) < 1:
                self._refuse(name, "at least 1")
        if self.steps < 1 and self.minutes <= 0:
            self._refuse("minutes", "above 0, or give --steps")
        if not 0 <= self.ema < 1:
            self._refuse("ema", "0 (off) up to below 1")
        if not 0 <= self.soft <= 1:
            self._refuse("soft", "0 to 1")
        if not all(part.strip().lstrip("-").isdigit() for part in self.taps.split(",")):
            self._refuse("taps", "layer ids with commas between")

    def _refuse(self, name: str, wanted: str) -> None:
        value = getattr(self, name)
        raise TrainingError(f"--{name.replace('_', '-')} {value}", f"It must be {wanted}")

    @property
    def tap_ids(self) -> list[int]:
        return [int(part) for part in self.taps.split(",")]

    @property
    def block_size(self) -> int:
        """Rows of a block: the one that drafts nothing (dflash2's anchor) included."""
        return self.block or (8 if self.kind == "dflash2" else 7)

    @property
    def needs_target_distribution(self) -> bool:
        """Whether a loss reads the target's own probabilities."""
        overlap = self.kind == "dspark" and self.confidence_label == "overlap"
        return self.l1 > 0 or self.soft > 0 or (overlap and self.confidence > 0)


def add_options(parser: argparse.ArgumentParser) -> None:
    """A flag for each field of TrainOptions."""
    for known in fields(TrainOptions):
        flag = f"--{known.name.replace('_', '-')}"
        text = f"{known.metadata['help']} (default {known.default})"
        if isinstance(known.default, bool):
            parser.add_argument(
                flag, action=argparse.BooleanOptionalAction, default=known.default, help=text
            )
        else:
            parser.add_argument(
                flag,
                type=type(known.default),
                default=known.default,
                choices=known.metadata["choices"],
                help=text,
            )


def read_options(values: Mapping[str, Any], where: str = "the command line") -> TrainOptions:
    """From parsed flags, or the keys of a plan (`where`); TrainingError names an unknown key."""
    known = {f.name: f for f in fields(TrainOptions)}
    for name, value in values.items():
        if name not in known:
            raise TrainingError(f"{where}: no option {name!r}", f"Known: {', '.join(known)}")
        if type(value) is not type(known[name].default) and not (
            type(value) is int and isinstance(known[name].default, float)
        ):
            wanted = type(known[name].default).__name__
            raise TrainingError(f"{where}: {name}={value!r}", f"It must be of type {wanted}")
    return TrainOptions(**values)
