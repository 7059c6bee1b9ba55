"""DFlash2's candidate selector: a path through the best unary candidates of each slot."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from native_engine.drafters.config import DrafterConfig
from native_engine.drafters.protocol import Ask, Proposal
from native_engine.drafters.sampling import by_ask, choose
from native_engine.linear import Linear
from native_engine.logprobs import largest
from native_engine.targets.source import TensorSource


class CandidateSelector:
    """`S_t(a, b) = U_t(b) + <A[a] * (H h_t), B[b]>` over the `top_k` candidates b of slot t with
    the highest unary logits U, where a is the token before: chosen left to right."""

    def __init__(
        self, config: DrafterConfig, source: TensorSource, pack: Callable[[Tensor], Linear]
    ) -> None:
        assert config.selector is not None
        vocab, rank, at = config.vocab_size, config.selector.rank, "candidate_selector"
        self._top_k = config.selector.top_k
        # Raw parameters: their names have no `.weight`.
        self._predecessor = source.take(f"{at}.predecessor_codebook", vocab, rank)
        self._successor = source.take(f"{at}.successor_codebook", vocab, rank)
        projection = source.take(f"{at}.hidden_projection.weight", rank, config.hidden_size)
        self._projection = pack(projection)

    def select(
        self, unary: Tensor, hidden: Tensor, anchors: Tensor, asks: Sequence[Ask]
    ) -> Proposal:
        """Walk the slots of FP32 `unary` `[n, slots, vocab]` (scaled and capped already), from
        `anchors` `[n]`; `hidden` `[n, slots, hidden]`, normed. At T > 0 the softmax of S / T over
        the candidates is the proposal, zero elsewhere."""
        n, slots, vocab = unary.shape
        scores, candidates = _top(unary, min(self._top_k, vocab))
        gates = self._projection(hidden.flatten(0, 1)).view(n, slots, -1).float()
        successors = self._successor[candidates].float()
        if all(ask.temperature == 0 for ask in asks):
            best = self._best(scores, candidates, gates, successors, anchors)
            return Proposal(_walk(best.tolist(), candidates.tolist()), [None] * n)
        previous, tokens, distributions = anchors, [], []
        for t in range(slots):
            path = self._predecessor[previous].float() * gates[:, t]
            transition = (successors[:, t] @ path.unsqueeze(-1)).squeeze(-1)
            column, drawn = choose(scores[:, t] + transition, asks)
            previous = candidates[:, t].gather(-1, column.unsqueeze(-1)).squeeze(-1)
            tokens.append(previous)
            distributions.append(
                {i: q.new_zeros(vocab).scatter(0, candidates[i, t], q) for i, q in drawn.items()}
            )
        return Proposal(torch.stack(tokens, dim=1).tolist(), by_ask(distributions, n))

    def _best(
        self,
        scores: Tensor,
        candidates: Tensor,
        gates: Tensor,
        successors: Tensor,
        anchors: Tensor,
    ) -> Tensor:
        """Column of each slot's best candidate after every candidate of the slot before (the first:
        after the anchor), `[n, slots, top_k]`: all at once, so that the walk is a look-up."""
        first = anchors.view(-1, 1, 1).expand(-1, 1, candidates.shape[-1])
        before = torch.cat((first, candidates[:, :-1]), dim=1)
        paths = self._predecessor[before].float() * gates.unsqueeze(2)
        table = scores.unsqueeze(2) + paths @ successors.transpose(-1, -2)
        return table.argmax(dim=-1)


def _walk(best: list[list[list[int]]], candidates: list[list[list[int]]]) -> list[list[int]]:
    """Each sequence's tokens, left to right."""
    drafts = []
    for columns, ids in zip(best, candidates, strict=True):
        column, tokens = 0, []
        for after, named in zip(columns, ids, strict=True):
            column = after[column]
            tokens.append(named[column])
        drafts.append(tokens)
    return drafts


def _top(unary: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The `count` largest of `[n, slots, vocab]` and their ids."""
    if unary.device.type != "cpu":
        scores, ids = unary.topk(count, dim=-1)
        return scores, ids
    ids = largest(unary.flatten(0, 1), count).view(*unary.shape[:2], count)
    return unary.gather(-1, ids), ids
