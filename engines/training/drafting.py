"""What a drafter proposes at many anchors at once: its greedy rule, as the engine computes it."""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from engines.training.drafter_model import DrafterModel


class Drafted(NamedTuple):
    """`tokens` `[rows, slots]`; `confidence` logits of the same shape, uncalibrated, or None."""

    tokens: Tensor
    confidence: Tensor | None


@torch.no_grad()
def greedy_drafts(model: DrafterModel, hidden: Tensor, anchors: Tensor, head: Tensor) -> Drafted:
    """Of the drafting rows' `hidden` `[rows, slots, hidden]` after the tokens `anchors` `[rows]`;
    `head` `[vocab, hidden]`."""
    config = model.config
    unary = (hidden.flatten(0, 1) @ head.t()).float().mul_(config.logit_multiplier)
    if config.logit_softcap is not None:
        unary = unary.div_(config.logit_softcap).tanh_().mul_(config.logit_softcap)
    unary = unary.view(*hidden.shape[:2], -1)
    if model.candidate_selector is not None:
        return Drafted(_select(model, unary, hidden, anchors), None)
    if model.markov_head is None:
        return Drafted(unary.argmax(-1), None)
    return _markov(model, unary, hidden, anchors)


def _select(model: DrafterModel, unary: Tensor, hidden: Tensor, anchors: Tensor) -> Tensor:
    """Walk over the best unary candidates of each slot."""
    config, selector = model.config.selector, model.candidate_selector
    assert config is not None and selector is not None
    scores, candidates = unary.topk(min(config.top_k, unary.shape[-1]), dim=-1)
    gates = selector.hidden_projection(hidden).float()
    previous, tokens = anchors, []
    for t in range(hidden.shape[1]):
        path = F.embedding(previous, selector.predecessor_codebook).float() * gates[:, t]
        successors = F.embedding(candidates[:, t], selector.successor_codebook).float()
        transition = (successors @ path.unsqueeze(-1)).squeeze(-1)
        best = (scores[:, t] + transition).argmax(-1, keepdim=True)
        previous = candidates[:, t].gather(-1, best).squeeze(-1)
        tokens.append(previous)
    return torch.stack(tokens, dim=1)


def _markov(model: DrafterModel, unary: Tensor, hidden: Tensor, anchors: Tensor) -> Drafted:
    """Left to right, each slot's logits corrected by the token before."""
    heads, confidence = model.markov_head, model.confidence_head
    assert heads is not None
    previous, tokens, logits = anchors, [], []
    for k in range(hidden.shape[1]):
        latent = heads.markov_w1(previous).to(hidden.dtype)
        if confidence is not None:
            with_markov = model.config.confidence_with_markov
            inputs = torch.cat((hidden[:, k], latent), -1) if with_markov else hidden[:, k]
            logits.append(confidence.proj(inputs).squeeze(-1).float())
        previous = (unary[:, k] + heads.markov_w2(latent)).argmax(-1)
        tokens.append(previous)
    return Drafted(
        torch.stack(tokens, dim=1), torch.stack(logits, dim=1) if confidence is not None else None
    )
