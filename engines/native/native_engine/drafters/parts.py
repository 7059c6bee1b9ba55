"""A drafter's modules, taken from any tensor source: a checkpoint, dummy weights, or a list."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from native_engine.drafters.backbone import Backbone
from native_engine.drafters.confidence import ConfidenceHead
from native_engine.drafters.config import DrafterConfig
from native_engine.drafters.markov import MarkovHead
from native_engine.drafters.selector import CandidateSelector
from native_engine.linear import Linear
from native_engine.targets.modules import Pack
from native_engine.targets.source import TensorSource


@dataclass(frozen=True)
class Parts:
    """None where the drafter's kind has no such module, or shares the target's own."""

    backbone: Backbone
    selector: CandidateSelector | None
    markov: MarkovHead | None
    confidence: ConfidenceHead | None
    embedding: Tensor | None
    head: Linear | None


def load_parts(config: DrafterConfig, source: TensorSource, pack: Pack) -> Parts:
    """Take every tensor the drafter has; `pack` keeps a `[out, in]` matrix ready to multiply."""
    table = (config.vocab_size, config.hidden_size)
    return Parts(
        backbone=Backbone(config, source, pack),
        selector=CandidateSelector(config, source, pack) if config.selector else None,
        markov=MarkovHead(config, source, pack) if config.markov else None,
        confidence=ConfidenceHead(config, source) if config.confidence else None,
        embedding=source.take("embed_tokens.weight", *table) if config.own_embedding else None,
        head=pack(source.take("lm_head.weight", *table)) if config.own_head else None,
    )
