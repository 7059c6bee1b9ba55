"""The candidate selector at T > 0: q sums to one, and the draws follow it."""

from __future__ import annotations

from copy import copy
from functools import cache

import torch

from native_engine.drafters.config import DrafterConfig
from native_engine.drafters.protocol import Ask
from native_engine.drafters.selector import CandidateSelector
from native_engine.linear import PlainLinear
from native_engine.targets.source import TensorSource
from tests.engines.native.drafters.reference import Reference
from tests.engines.native.drafters.synthetic import HIDDEN, MUSE, VOCAB, random_weights

DRAWS, TEMPERATURE, ANCHOR = 20_000, 1.0, 7


class Tensors:
    def __init__(self, weights: dict[str, torch.Tensor]) -> None:
        self.weights = weights

    def has(self, name: str) -> bool:
        return name in self.weights

    def take(self, name: str, *shape: int, dtype: torch.dtype | None = None) -> torch.Tensor:
        return self.weights[name]


@cache
def draw() -> tuple[torch.Tensor, torch.Tensor, Reference, torch.Tensor]:
    """20,000 drafts of two slots: tokens `[draws, 2]`, q `[draws, 2, vocab]`, the reference and
    its block's hidden states."""
    weights = random_weights(MUSE)
    for name in ("predecessor_codebook", "successor_codebook"):
        weights[f"candidate_selector.{name}"] *= 0.4  # no candidate without a chance
    source: TensorSource = Tensors(weights)
    selector = CandidateSelector(DrafterConfig.from_mapping(MUSE), source, PlainLinear)
    generator = torch.Generator().manual_seed(5)
    head = torch.randn(VOCAB, HIDDEN, generator=generator)
    hidden = torch.randn(3, HIDDEN, generator=generator)
    reference = Reference(MUSE, weights, head, head)
    unary = torch.stack([reference.unary(row.double()).float() for row in hidden[1:]])
    asks = [Ask(i, [ANCHOR], 2, TEMPERATURE, generator) for i in range(DRAWS)]
    found = selector.select(
        unary.expand(DRAWS, -1, -1),
        hidden[1:].expand(DRAWS, -1, -1),
        torch.full((DRAWS,), ANCHOR),
        asks,
    )
    q = torch.stack([one for one in found.q if one is not None])
    return torch.tensor(found.tokens), q, reference, hidden.double()


def test_draws_follow_the_proposal_distribution() -> None:
    tokens, q, reference, hidden = draw()
    assert (q.sum(-1) - 1).abs().max() < 1e-5
    assert (q > 0).sum(-1).max() == MUSE["dflash_config"]["selector_top_k"]
    expected = torch.zeros(VOCAB, VOCAB, dtype=torch.float64)
    first = torch.softmax(reference.scores(hidden, ANCHOR, [])[0] / TEMPERATURE, 0)
    for a in first.nonzero().flatten().tolist():
        second = torch.softmax(reference.scores(hidden, ANCHOR, [a])[1] / TEMPERATURE, 0)
        expected[a] = first[a] * second
    counts = torch.zeros(VOCAB, VOCAB, dtype=torch.float64)
    counts.index_put_(tuple(tokens.T), torch.ones(DRAWS, dtype=torch.float64), accumulate=True)
    assert counts[expected == 0].sum() == 0
    likely = expected * DRAWS >= 5
    chi = ((counts - DRAWS * expected) ** 2 / (DRAWS * expected))[likely].sum()
    freedom = int(likely.sum()) - 1
    assert freedom == 15
    # Mean and standard deviation of a chi-square with that many degrees of freedom.
    assert chi < freedom + 4 * (2 * freedom) ** 0.5
    # Each draw's q is the distribution it came from.
    row = expected[tokens[0, 0]] / first[tokens[0, 0]]
    assert (q[0, 1].double() - row).abs().max() < 1e-5


def test_scaling_before_selection_changes_it() -> None:
    """A softcap keeps the order of logits, not their distance: selection must come after it."""
    _, _, reference, hidden = draw()
    capped = reference.scores(hidden, ANCHOR, [])[0]
    unscaled = copy(reference)
    unscaled.raw = {**reference.raw, "output_multiplier": 1.0, "final_logit_softcapping": None}
    plain = unscaled.scores(hidden, ANCHOR, [])[0]
    assert torch.equal(torch.isinf(capped), torch.isinf(plain))
    assert (torch.softmax(capped, 0) - torch.softmax(plain, 0)).abs().max() > 0.05
