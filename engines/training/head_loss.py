"""Cross entropy (and |p_draft - p_target|) through the frozen head, a few rows of logits at a time.

The head is `[vocab, hidden]` and vocab is large: the gradient with respect to its inputs is
computed chunk by chunk in the forward pass, so that no logits are kept."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

Weigh = Callable[[Tensor, Tensor], Tensor]
"""(probability of the label, validity) `[blocks, slots]` each to weights of that shape."""
_GROUP = 256


class HeadRows(NamedTuple):
    """What a slot's logits are made of and compared with, `[blocks, slots, ..]` each.

    hidden: normed. latent: `W1[previous]` of the Markov head, or None. target: the target's own
    final hidden states, or None. labels, valid: see Blocks."""

    hidden: Tensor
    latent: Tensor | None
    target: Tensor | None
    labels: Tensor
    valid: Tensor


@dataclass(frozen=True)
class HeadTerms:
    """ce, l1: weights of the two terms. soft: share of the target's distribution in the labels.
    candidates: how many of the largest unary logits to find (0: none)."""

    ce: float
    l1: float
    soft: float
    candidates: int
    chunk_rows: int


class HeadSeen(NamedTuple):
    """Facts about the logits, without gradient. `weights`, `correct` (the largest logit is the
    label's), `overlap` (`1 - |p_draft - p_target| / 2`; empty without target): `[blocks, slots]`.
    `candidates`: ids `[blocks, slots, k]`. `ce`, `l1`: means by `weights`."""

    weights: Tensor
    correct: Tensor
    overlap: Tensor
    candidates: Tensor
    ce: Tensor
    l1: Tensor


class _Gradients(NamedTuple):
    hidden: Tensor
    latent: Tensor | None
    markov: Tensor | None


def head_loss(
    rows: HeadRows, head: Tensor, markov: Tensor | None, terms: HeadTerms, weigh: Weigh
) -> tuple[Tensor, HeadSeen]:
    """`terms` averaged over slots by `weigh`, differentiable in `rows.hidden`, `rows.latent` and
    `markov` `[vocab, rank]` (W2); products are in `head`'s dtype, softmax in FP32 at least."""
    out: tuple[Any, ...] = _HeadLoss.apply(  # type: ignore[no-untyped-call]
        rows.hidden, rows.latent, markov, rows, head, terms, weigh
    )
    return out[0], HeadSeen(*out[1:])


class _HeadLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        latent: Tensor | None,
        markov: Tensor | None,
        rows: HeadRows,
        head: Tensor,
        terms: HeadTerms,
        weigh: Weigh,
    ) -> tuple[Tensor, ...]:
        with torch.autocast(hidden.device.type, enabled=False):
            loss, seen, gradients = _compute(rows, head, markov, terms, weigh)
        ctx.gradients = gradients
        ctx.mark_non_differentiable(*seen)
        return (loss, *seen)

    @staticmethod
    def backward(ctx: Any, grad: Tensor, *_: Any) -> tuple[Any, ...]:
        scaled = [None if g is None else g * grad.to(g.dtype) for g in ctx.gradients]
        return (*scaled, None, None, None, None)


def _compute(
    rows: HeadRows, head: Tensor, markov: Tensor | None, terms: HeadTerms, weigh: Weigh
) -> tuple[Tensor, HeadSeen, _Gradients]:
    blocks, slots, _ = rows.hidden.shape
    dtype, wide = head.dtype, torch.promote_types(head.dtype, torch.float32)
    w2 = None if markov is None else markov.to(dtype)
    seen: list[tuple[Tensor, ...]] = []
    for_hidden, for_latent = [], []
    for_markov = None if w2 is None else torch.zeros(w2.shape, dtype=wide, device=w2.device)
    size = max(1, terms.chunk_rows // slots)
    for begin in range(0, blocks, size):
        part = _cut(rows, begin, begin + size)
        hidden = part.hidden.flatten(0, 1).to(dtype)
        logits = hidden @ head.t()
        found = _largest(logits, terms.candidates)
        latent = None if part.latent is None else part.latent.flatten(0, 1).to(dtype)
        if latent is not None and w2 is not None:
            logits = torch.addmm(logits, latent, w2.t())
        facts, gradient = _rows_loss(logits, part, head, terms, weigh, wide)
        for_hidden.append((gradient @ head).to(rows.hidden.dtype))
        if latent is not None and w2 is not None and for_markov is not None:
            for_latent.append(gradient @ w2)
            for_markov += gradient.t() @ latent
        seen.append((*facts, found.view(len(part.labels), slots, found.shape[1])))
    weights, correct, overlap, ce, l1, candidates = (torch.cat(c) for c in zip(*seen, strict=True))
    total = weights.sum().clamp(min=torch.finfo(wide).tiny)
    means = (ce * weights).sum() / total, (l1 * weights).sum() / total
    loss = terms.ce * means[0] + terms.l1 * means[1]

    def joined(parts: list[Tensor], like: Tensor) -> Tensor:
        return (torch.cat(parts).view_as(like) / total).to(like.dtype)

    gradients = _Gradients(
        joined(for_hidden, rows.hidden),
        joined(for_latent, rows.latent) if rows.latent is not None else None,
        None if for_markov is None or markov is None else (for_markov / total).to(markov.dtype),
    )
    return loss, HeadSeen(weights, correct, overlap, candidates, *means), gradients


def _cut(rows: HeadRows, begin: int, end: int) -> HeadRows:
    hidden, latent, target, labels, valid = (None if t is None else t[begin:end] for t in rows)
    assert hidden is not None and labels is not None and valid is not None
    return HeadRows(hidden, latent, target, labels, valid)


def _rows_loss(
    logits: Tensor, part: HeadRows, head: Tensor, terms: HeadTerms, weigh: Weigh, wide: torch.dtype
) -> tuple[tuple[Tensor, ...], Tensor]:
    """Facts `[blocks, slots]` of a chunk (weights, correct, overlap, ce, l1), and the gradient of
    its weighted sum of terms with respect to `logits`, which it may overwrite."""
    shape, label = part.labels.shape, part.labels.reshape(-1, 1)
    correct = logits.gather(1, label) >= logits.amax(1, keepdim=True)
    p = torch.softmax(logits, dim=-1, dtype=wide)
    p_label = p.gather(1, label)
    weights = weigh(p_label.view(shape), part.valid)
    w = weights.view(-1, 1)
    ce = -(1 - terms.soft) * p_label.clamp(min=1e-38).log()
    l1, overlap = torch.zeros_like(ce), ce.new_zeros(shape[0], 0)
    gradient: Tensor | None = None
    if part.target is not None:
        q = torch.softmax(part.target.flatten(0, 1).to(head.dtype) @ head.t(), -1, dtype=wide)
        sign = (p - q).sign_()
        signed = (p * sign).sum(-1, keepdim=True)
        l1 = signed - (q * sign).sum(-1, keepdim=True)
        overlap = (1 - 0.5 * l1).view(shape)
        if terms.l1:
            gradient = sign.sub_(signed).mul_(p).mul_(w * terms.l1)
        if terms.soft:
            ce = ce - terms.soft * (q * p.clamp(min=1e-38).log()).sum(-1, keepdim=True)
            pull = q.mul_(w * (-terms.ce * terms.soft))
            gradient = pull if gradient is None else gradient.add_(pull)
    # In FP32: a label of probability near 1 leaves a difference that BF16 has not.
    p.scatter_add_(1, label, torch.full_like(p_label, terms.soft - 1))
    if gradient is None:
        gradient = torch.mul(p, w * terms.ce, out=logits)
    else:
        gradient = gradient.add_(p.mul_(w * terms.ce)).to(logits.dtype)
    facts = (weights, correct.view(shape), overlap, ce.view(shape), l1.view(shape))
    return facts, gradient


def _largest(logits: Tensor, count: int) -> Tensor:
    """Ids of the `count` largest of each row, `[rows, count]`.

    They lie in the `count` groups of columns with the largest maxima: one pass over all logits
    instead of a selection among them."""
    rows, vocab = logits.shape
    if count == 0 or vocab % _GROUP or vocab // _GROUP <= count:
        return logits.topk(min(count, vocab), dim=-1).indices
    groups = logits.view(rows, -1, _GROUP)
    best = groups.amax(-1).topk(count, dim=-1).indices
    values = groups.gather(1, best[..., None].expand(-1, -1, _GROUP)).flatten(1)
    at = values.topk(count, dim=-1).indices
    return best.gather(1, at // _GROUP) * _GROUP + at % _GROUP
