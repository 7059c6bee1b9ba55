"""Which drafted tokens are committed, for many sequences at once: what the target would choose.

Temperature 0: the longest prefix equal to the target's own choices, and its next one. Above 0,
speculative sampling (Leviathan et al. 2023, section 2.3 and appendix A.1): token x of the draft,
sampled from q, is accepted with probability min(1, p(x) / q(x)); at the first rejection the token
comes from max(p - q, 0) normalised, after a whole draft from p. A draft that was not sampled is a
q with all its mass on the guess. p is the target's distribution after temperature, top-k, top-p."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

import torch
from torch import Tensor

from native_engine.decode import accepted_prefix
from native_engine.errors import NativeEngineError, NotFinite
from native_engine.requests import SamplingOptions


@dataclass(frozen=True)
class Draft:
    """A sequence's guesses (maybe none), verified by `len(tokens) + 1` rows of logits. `q`: as in
    Proposal, a row for each. `sampling` and `generator` (of the logits' device) are given
    together; without them the choice is greedy."""

    slot: int
    tokens: Sequence[int]
    q: Tensor | None = None
    sampling: SamplingOptions | None = None
    generator: torch.Generator | None = None


Committed = list[int] | NativeEngineError
"""Accepted tokens and one more of the target's; or why this sequence may not go on."""


def verify(logits: Tensor, drafts: Sequence[Draft]) -> list[Committed]:
    """What each draft commits. `logits` `[rows, vocab]`: each draft's rows, draft after draft.

    Tokens that a row with NaN or infinity would choose are left out, and all after them; NotFinite
    where that is the first row. Ties go to the lowest id."""
    best, ids = logits.max(dim=-1)
    finite, chosen = best.isfinite().tolist(), ids.tolist()
    committed: list[Committed] = []
    sound: list[int] = []
    sampled: list[tuple[int, Draft, Tensor]] = []
    begin = 0
    for draft in drafts:
        end = begin + len(draft.tokens) + 1
        sound.append(next((i for i in range(begin, end) if not finite[i]), end) - begin)
        if not finite[begin]:
            text = "the target's logits hold NaN or infinity: no token can be chosen"
            committed.append(NotFinite(text))
        elif draft.sampling is None:
            accepted = accepted_prefix(draft.tokens, chosen[begin:end])
            committed.append(chosen[begin : begin + accepted + 1])
        else:
            sampled.append((len(committed), draft, target_distribution(logits[begin:end], draft)))
            committed.append([])
        begin = end
    if sampled:
        p = torch.cat([p for _, _, p in sampled])
        tokens = verify_sampled(p, [draft for _, draft, _ in sampled])
        for (at, _, _), outcome in zip(sampled, tokens, strict=True):
            committed[at] = outcome
    return [c[:n] if isinstance(c, list) else c for c, n in zip(committed, sound, strict=True)]


def target_distribution(logits: Tensor, draft: Draft) -> Tensor:
    """p of each row, `[rows, vocab]` FP32. Equal logits at the edge of top-k all stay."""
    options = draft.sampling
    assert options is not None
    values = logits.float()
    values = (values - values.amax(-1, keepdim=True)) / options.temperature
    if 0 < options.top_k < values.shape[-1]:
        least = values.topk(options.top_k).values[:, -1:]
        values = values.masked_fill(values < least, float("-inf"))
    if options.top_p < 1:
        ordered, ids = values.softmax(-1).sort(dim=-1, descending=True, stable=True)
        beyond = ordered.cumsum(-1) - ordered >= options.top_p
        values = values.masked_fill(torch.zeros_like(beyond).scatter(1, ids, beyond), float("-inf"))
    return values.softmax(-1)


def verify_sampled(p: Tensor, drafts: Sequence[Draft]) -> list[Committed]:
    """What each draft commits, given p of all their rows `[rows, vocab]`."""
    counts = [len(draft.tokens) for draft in drafts]
    begins = list(accumulate((count + 1 for count in counts), initial=0))
    # Row i of u is drawn for row i of p: a guess's acceptance, or the last token of the draft.
    u = torch.cat(
        [
            torch.rand(n + 1, generator=d.generator, dtype=torch.float64, device=p.device)
            for n, d in zip(counts, drafts, strict=True)
        ]
    )
    accepted = _accepted(p, u, drafts, begins)
    rows = [begin + max(k, 0) for begin, k in zip(begins, accepted, strict=False)]
    weights = p[torch.tensor(rows, device=p.device)].double()
    refused = [i for i, k in enumerate(accepted) if 0 <= k < counts[i]]
    if refused:
        at = torch.tensor(refused, device=p.device)
        weights[at] = _residual(weights[at], [(drafts[i], accepted[i]) for i in refused])
    last = torch.tensor([end - 1 for end in begins[1:]], device=p.device)
    tokens = _draw(weights, u[last])
    return [
        [*draft.tokens[:k], token] if k >= 0 else NativeEngineError("q of a guess must be above 0")
        for draft, k, token in zip(drafts, accepted, tokens, strict=True)
    ]


def _accepted(p: Tensor, u: Tensor, drafts: Sequence[Draft], begins: Sequence[int]) -> list[int]:
    """How many guesses of each draft are accepted; -1 where q denies a guess that was made."""
    at = list(accumulate((len(draft.tokens) for draft in drafts), initial=0))
    spans = list(zip(drafts, begins, at, at[1:], strict=False))
    rows = torch.tensor([row for _, row0, i, j in spans for row in range(row0, row0 + j - i)])
    rows = rows.long().to(p.device)
    guesses = torch.tensor([t for draft in drafts for t in draft.tokens]).long().to(p.device)
    q = torch.ones(len(guesses), dtype=torch.float64, device=p.device)
    for draft, _, i, j in spans:
        if draft.q is not None:
            q[i:j] = draft.q.gather(1, guesses[i:j, None])[:, 0]
    taken, denied = (u[rows] * q < p[rows, guesses].double()).tolist(), (q <= 0).tolist()
    accepted = []
    for i, j in pairwise(at):
        first = next((guess for guess in range(i, j) if not taken[guess]), j)
        accepted.append(-1 if any(denied[i:j]) else first - i)
    return accepted


def _residual(p: Tensor, refused: Sequence[tuple[Draft, int]]) -> Tensor:
    """max(p - q, 0) where guess k of a draft was refused; `[n, vocab]`, not normalised."""
    rest = p.clone()
    for row, (draft, k) in zip(rest, refused, strict=True):
        if draft.q is None:
            row[draft.tokens[k]] = 0
        else:
            row.sub_(draft.q[k])
    rest.clamp_(min=0)
    # Where rounding leaves nothing, p was q.
    return torch.where(rest.sum(-1, keepdim=True) > 0, rest, p)


def _draw(weights: Tensor, u: Tensor) -> list[int]:
    """A token for each row of FP64 weights `[n, vocab]`, by u in [0, 1): inverse CDF."""
    cdf = weights.cumsum(-1)
    total = cdf[:, -1]
    # Strictly below the total, so that the token found has weight of its own.
    point = torch.minimum(u * total, torch.nextafter(total, torch.zeros_like(total)))
    tokens: list[int] = torch.searchsorted(cdf, point[:, None], right=True)[:, 0].tolist()
    return tokens
