"""DFlash2's candidate selector: a path through the best unary candidates of each slot."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from native_engine.drafters.config import DrafterConfig
from native_engine.drafters.protocol import Ask, Proposal
from native_engine.drafters.sampling import by_ask, choose
from native_engine.linear import Linear
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
        scores, candidates = unary.topk(min(self._top_k, vocab), dim=-1)
        gates = self._projection(hidden.flatten(0, 1)).view(n, slots, -1).float()
        successors = self._successor[candidates].float()
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
