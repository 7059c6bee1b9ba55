"""The training loss of a drafter: slots weighted by position, selector, confidence.

Position-weighted cross entropy: DFlash (arXiv 2602.06036); Markov bias, L1 and confidence: DSpark
(arXiv 2607.05147); the selector's cross entropy is teacher-forced among its own candidates."""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from engines.training.blocks import Blocks
from engines.training.drafter_model import DrafterModel
from engines.training.head_loss import HeadRows, HeadSeen, HeadTerms, Weigh, head_loss
from engines.training.options import TrainOptions

PARTS = ("loss", "ce", "l1", "selector", "confidence")


class Losses(NamedTuple):
    """`total` to differentiate; `parts` `[len(PARTS)]`, without gradient; `hits` and `tries`
    `[slots]`: slots whose choice was the answer's token, of those that have one."""

    total: Tensor
    parts: Tensor
    hits: Tensor
    tries: Tensor


def drafter_losses(
    model: DrafterModel,
    hidden: Tensor,
    blocks: Blocks,
    head: Tensor,
    final: Tensor | None,
    options: TrainOptions,
) -> Losses:
    """Of `hidden` `[n, blocks, slots, hidden]`, the drafting rows; `head` `[vocab, hidden]`;
    `final` `[n, tokens, hidden]`, the target's own final hidden states."""
    flat = hidden.flatten(0, 1)
    labels, previous = blocks.labels.flatten(0, 1), blocks.previous.flatten(0, 1)
    valid = blocks.valid.flatten(0, 1)
    markov = model.markov_head
    latent = None if markov is None else markov.markov_w1(previous)
    rows = HeadRows(flat, latent, _target_rows(final, blocks), labels, valid)
    selecting = model.candidate_selector is not None and options.selector > 0
    terms = HeadTerms(
        options.ce,
        options.l1,
        options.soft,
        options.selector_top_k if selecting else 0,
        options.chunk_rows,
    )
    w2 = None if markov is None else markov.markov_w2.weight
    total, seen = head_loss(rows, head, w2, terms, slot_weights(options))
    correct, zero = seen.correct, total.detach().new_zeros(())
    selector, confidence = zero, zero
    if selecting:
        selector, correct = selector_loss(model, rows, previous, head, seen)
        total = total + options.selector * selector
    if model.confidence_head is not None and options.confidence > 0:
        confidence = confidence_loss(model, rows, seen, options)
        total = total + options.confidence * confidence
    parts = torch.stack([part.detach() for part in (total, seen.ce, seen.l1, selector, confidence)])
    return Losses(total, parts, (correct & valid).sum(0), valid.sum(0))


def slot_weights(options: TrainOptions) -> Weigh:
    """decay: `exp(-(k - 1) / gamma)`. accept: the probability, by the drafter itself, that all
    earlier slots of the block are right. expected: the gradient of the expected accept length,
    `sum_{j >= k} p_1 .. p_j`. The last two are constants to the gradient."""

    def weigh(p_label: Tensor, valid: Tensor) -> Tensor:
        alive = valid.to(p_label.dtype)
        if options.weights == "decay":
            slot = torch.arange(p_label.shape[1], device=p_label.device)
            return torch.exp(-slot / options.gamma) * alive
        reached = (p_label * alive).cumprod(-1)
        if options.weights == "accept":
            return torch.cat((alive[:, :1], reached[:, :-1] * alive[:, 1:]), dim=-1)
        return reached.flip(-1).cumsum(-1).flip(-1)

    return weigh


def selector_loss(
    model: DrafterModel, rows: HeadRows, previous: Tensor, head: Tensor, seen: HeadSeen
) -> tuple[Tensor, Tensor]:
    """Cross entropy among the candidates of each slot that has the true token among them, and
    which slots (`[blocks, slots]`) the selector gets right after the true predecessor."""
    selector = model.candidate_selector
    assert selector is not None
    candidates = seen.candidates
    unary = (F.embedding(candidates, head) @ rows.hidden.to(head.dtype).unsqueeze(-1)).squeeze(-1)
    gates = selector.hidden_projection(rows.hidden)
    path = F.embedding(previous, selector.predecessor_codebook) * gates
    successors = F.embedding(candidates, selector.successor_codebook)
    scores = unary.float() + (successors * path.unsqueeze(-2)).sum(-1)
    is_label = candidates == rows.labels.unsqueeze(-1)
    weights = seen.weights * is_label.any(-1)
    ce = -(scores.log_softmax(-1) * is_label).sum(-1)
    loss = (ce * weights).sum() / weights.sum().clamp(min=1e-30)
    best = candidates.gather(-1, scores.argmax(-1, keepdim=True)).squeeze(-1)
    return loss, best == rows.labels


def confidence_loss(
    model: DrafterModel, rows: HeadRows, seen: HeadSeen, options: TrainOptions
) -> Tensor:
    """Binary cross entropy against whether the draft is right (greedy), or the overlap."""
    assert model.confidence_head is not None
    inputs = rows.hidden if rows.latent is None else torch.cat((rows.hidden, rows.latent), -1)
    if options.confidence_detach:
        inputs = inputs.detach()
    logits = model.confidence_head.proj(inputs).squeeze(-1).float()
    label = seen.overlap if options.confidence_label == "overlap" else seen.correct
    bce = F.binary_cross_entropy_with_logits(logits, label.to(logits.dtype), reduction="none")
    return (bce * seen.weights).sum() / seen.weights.sum().clamp(min=1e-30)


def _target_rows(final: Tensor | None, blocks: Blocks) -> Tensor | None:
    """The target's final hidden states that predict each slot's label."""
    if final is None:
        return None
    n, count, slots = blocks.labels.shape
    at = blocks.anchors[..., None] + torch.arange(slots, device=final.device)
    at = at.clamp(max=final.shape[1] - 1).view(n, count * slots, 1)
    rows = final.gather(1, at.expand(-1, -1, final.shape[-1]))
    return rows.view(n * count, slots, -1)
