"""Bytes and FLOPs of a decode step by component, from config.json alone.

A step computes `rows` rows (the last token and the draft) after `context` tokens and, with a
parallel drafter, one block. Weights are read once a step, whoever shares them: the drafter's pass
and the target's come one after the other, so the head they share is read in each. Of tables that
are looked up (embedding, the selector's codebooks) only rows are read. Activations stay on the
chip. Keys and values are read as far as `context` goes, in sliding layers too: their windows are
longer than the contexts used here.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from farm.native_code import make_importable
from settings.errors import SpecfarmError

if TYPE_CHECKING:
    from native_engine.drafters.config import DrafterConfig

Tensors = Mapping[str, tuple[tuple[int, ...], int]]
"""Shape and bytes an element, by tensor name."""

_COMPONENTS = (
    ("lm_head", r"lm_head"),
    ("embedding", r"embed_tokens"),
    ("gdn_conv", r"conv1d"),
    ("gdn_recurrence", r"A_log|dt_bias"),
    ("gdn_proj", r"linear_attn\.(in_proj|out_proj)"),
    ("norms", r"norm"),
    ("o_proj", r"o_proj"),
    ("qkv", r"self_attn\."),
    ("gate_up", r"(gate|up)_proj"),
    ("down", r"down_proj"),
)
_KEY_VALUE = re.compile(r"\.[kv]_proj\.weight$")
_SELECTION = re.compile(r"^(candidate_selector|markov_head|confidence_head)\.")


@dataclass(frozen=True)
class Traffic:
    """What a component cannot do without in one step."""

    component: str
    bytes: float
    flops: float = 0.0


def target_tensors(folder: Path, dtype: str) -> tuple[dict[str, tuple[tuple[int, ...], int]], bool]:
    """Every tensor the native engine loads of the model in `folder`, and whether its head is its
    embedding; nothing is read but config.json.

    Raises:
        SpecfarmError: the engine does not compute this model.
    """
    make_importable()
    import torch

    from native_engine.errors import NativeEngineError
    from native_engine.targets.hf_config import HfConfig
    from native_engine.targets.load import build_target
    from native_engine.targets.source import RecordingSource

    class Sizes(RecordingSource):
        def __init__(self) -> None:
            super().__init__(torch.float32 if dtype == "fp32" else torch.bfloat16)
            self.tensors: dict[str, tuple[tuple[int, ...], int]] = {}

        def take(self, name: str, *shape: int, dtype: torch.dtype | None = None) -> torch.Tensor:
            tensor = super().take(name, *shape, dtype=dtype)
            self.tensors[name] = (shape, tensor.element_size())
            return tensor

    source = Sizes()
    try:
        build_target(HfConfig.from_folder(folder), source)
    except NativeEngineError as error:
        raise SpecfarmError(f"{folder}: {error}") from error
    return source.tensors, not any("lm_head" in name for name in source.tensors)


def target_traffic(
    tensors: Tensors,
    tied_head: bool,
    rows: int,
    context: int,
    kv_bytes: int,
    sequences: int = 1,
) -> list[Traffic]:
    """Components of a target's pass over `rows` rows of each of `sequences`; `kv_bytes` of an
    element of the cache."""
    keys, rows = sequences * (context + rows), sequences * rows
    bytes_of: dict[str, float] = defaultdict(float)
    flops_of: dict[str, float] = defaultdict(float)
    for name, (shape, size) in tensors.items():
        component = component_of(name)
        numbers = math.prod(shape)
        if component == "embedding":
            bytes_of[component] += rows * shape[-1] * size
            if not tied_head:
                continue
            component = "lm_head"
        bytes_of[component] += numbers * size
        if len(shape) > 1:
            flops_of[component] += 2.0 * numbers * rows
        if _KEY_VALUE.search(name):
            bytes_of["attention"] += keys * shape[0] * kv_bytes
    return [Traffic(name, bytes_of[name], flops_of[name]) for name in sorted(bytes_of)]


def component_of(tensor: str) -> str:
    """The component that reads a target's tensor; `other` where no rule knows it."""
    return next((name for name, rule in _COMPONENTS if re.search(rule, tensor)), "other")


def drafter_traffic(
    config: DrafterConfig, context: int, element_bytes: int, head: Traffic, sequences: int = 1
) -> list[Traffic]:
    """`draft`: a block of each sequence through the drafter's layers, the head on its slots.
    `selector`: what picks the tokens. `head` is the target's, shared unless the drafter has its
    own.

    The Markov head multiplies its second table again for every slot: each waits for the token
    before. The fused context rows are as few as the committed tokens and are not counted.
    """
    make_importable()
    from native_engine.drafters.describe import describe

    slots, block = sequences * config.max_drafts, sequences * config.block_size
    keys = sequences * (context + config.block_size)
    candidates = config.selector.top_k if config.selector else 1
    looked_up = {
        "embed_tokens.weight": block,
        "candidate_selector.predecessor_codebook": slots,
        "candidate_selector.successor_codebook": slots * candidates,
        "markov_head.markov_w1.weight": slots,
    }
    rows_of = {"lm_head.weight": slots, "markov_head.markov_w2.weight": slots}
    bytes_of = {"draft": 0.0, "selector": 0.0}
    flops_of = {"draft": 0.0, "selector": 0.0}
    for name, shape in describe(config).shapes.items():
        component = "selector" if _SELECTION.match(name) else "draft"
        numbers = looked_up[name] * shape[-1] if name in looked_up else math.prod(shape)
        again = config.max_drafts if name == "markov_head.markov_w2.weight" else 1
        bytes_of[component] += again * numbers * element_bytes
        if len(shape) > 1 and name not in looked_up:
            flops_of[component] += 2.0 * numbers * rows_of.get(name, block)
        if _KEY_VALUE.search(name):
            bytes_of[component] += keys * shape[0] * element_bytes
    if not config.own_head:
        bytes_of["draft"] += head.bytes
        flops_of["draft"] += 2.0 * slots * config.vocab_size * config.hidden_size
    if not config.own_embedding:
        bytes_of["draft"] += block * config.hidden_size * element_bytes
    return [Traffic(name, bytes_of[name], flops_of[name]) for name in ("draft", "selector")]
