"""Greedy chain accept length without an engine: drafts at every anchor of an answer, then the walk
that a verify loop would take through them.

Counted as the engine counts: the first token is the prompt's own step; a decode step commits the
longest right prefix of its draft and one token more, no further than the answer's end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from engines.training.blocks import make_blocks
from engines.training.corpus import Batch, Corpus, Ids
from engines.training.drafter_model import DrafterModel
from engines.training.drafting import greedy_drafts
from engines.training.features import FrozenTarget
from native_engine.decode import accepted_prefix
from native_engine.ngram import NgramDrafter, NgramOptions

Propose = Callable[[Sequence[int]], Sequence[int]]
"""Drafts after a context, its last token the anchor."""
_RESAMPLES = 2000


@dataclass
class Walk:
    """One answer. `tokens` of it; decode `steps`; by draft slot how often a step `reached` it (the
    answer goes that far and all before was accepted) and `accepted` it. `anchors`: answer
    positions of the steps (0: the answer's first token); `lengths`: accepted drafts of each."""

    family: str
    tokens: int
    steps: int = 0
    reached: list[int] = field(default_factory=list)
    accepted: list[int] = field(default_factory=list)
    anchors: list[int] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)


def walk(
    prompt: Sequence[int], answer: Sequence[int], slots: int, propose: Propose, family: str
) -> Walk:
    """Verify `propose`'s drafts of at most `slots` tokens along one greedy answer."""
    found = Walk(family, len(answer), reached=[0] * slots, accepted=[0] * slots)
    context, at = [*prompt, *answer[:1]], 0
    while at + 1 < len(answer):
        truth = answer[at + 1 : at + 1 + slots]
        draft = list(propose(context))[:slots]
        taken = accepted_prefix(draft, truth)
        for k in range(taken):
            found.accepted[k] += 1
        for k in range(min(taken + 1, len(truth), len(draft))):
            found.reached[k] += 1
        found.anchors.append(at)
        found.lengths.append(taken)
        found.steps += 1
        step = min(taken + 1, len(answer) - 1 - at)
        context += answer[at + 1 : at + 1 + step]
        at += step
    return found


class AllDrafts:
    """A drafter's tokens (and confidence logits) at every anchor of one sequence at a time."""

    def __init__(self, model: DrafterModel, target: FrozenTarget) -> None:
        self._target = target
        self._rows = 2304 if target.device.type == "cuda" else 512
        self._model = model.to(target.device, target.dtype).eval()

    @torch.no_grad()
    def of(self, ids: Sequence[int], prompt: int) -> tuple[Tensor, Tensor | None]:
        """Drafts anchored at positions `prompt .. len(ids) - 2`, `[anchors, slots]` on the CPU."""
        device, config = self._target.device, self._model.config
        tokens = torch.tensor([ids], device=device)
        batch = Batch(
            tokens,
            torch.tensor([len(ids)], device=device),
            torch.tensor([prompt], device=device),
        )
        drafts, logits = [], []
        taps = self._target.features(tokens, config.taps).taps
        count = max(1, self._rows // config.block_size)
        for begin in range(prompt, len(ids) - 1, count):
            anchors = torch.arange(begin, min(begin + count, len(ids) - 1), device=device)[None]
            blocks = make_blocks(
                batch,
                anchors,
                torch.ones_like(anchors, dtype=torch.bool),
                config.block_size,
                config.max_drafts,
                config.mask_token_id,
            )
            hidden = self._model(taps, anchors, self._target.embed(blocks.ids))
            rows = self._model.drafting(hidden)[0]
            found = greedy_drafts(self._model, rows, tokens[0, anchors[0]], self._target.head)
            drafts.append(found.tokens.cpu())
            if found.confidence is not None:
                logits.append(found.confidence.cpu())
        return torch.cat(drafts), torch.cat(logits) if logits else None


def drafter_walks(
    model: DrafterModel, target: FrozenTarget, corpus: Corpus, ids: Ids
) -> tuple[list[Walk], list[Tensor]]:
    """Walks of sequences `ids`, and (DSpark) the confidence logits `[steps, slots]` of each."""
    everywhere, walks, logits = AllDrafts(model, target), [], []
    slots = model.config.max_drafts
    for i in ids:
        sequence, prompt = corpus.sequence(int(i)), int(corpus.prompt_lengths[i])
        tokens, confidence = everywhere.of(sequence, prompt)
        drafts = tokens.tolist()
        first = prompt + 1

        def propose(
            context: Sequence[int], drafts: list[list[int]] = drafts, first: int = first
        ) -> list[int]:
            return drafts[len(context) - first]

        name = corpus.family_names[corpus.families[i]]
        found = walk(sequence[:prompt], sequence[prompt:], slots, propose, name)
        walks.append(found)
        if confidence is not None:
            logits.append(confidence[found.anchors])
    return walks, logits


def ngram_walks(corpus: Corpus, ids: Ids, slots: int) -> list[Walk]:
    """The same answers drafted by prompt lookup with the engine's default options."""
    walks = []
    for i in ids:
        sequence, prompt = corpus.sequence(int(i)), int(corpus.prompt_lengths[i])
        drafter = NgramDrafter(NgramOptions(), slots)
        name = corpus.family_names[corpus.families[i]]
        walks.append(walk(sequence[:prompt], sequence[prompt:], slots, drafter.propose, name))
    return walks


@dataclass(frozen=True)
class AcceptLength:
    """Of one family, or all (""). mean: tokens a decode step, bonus included; low, high: bootstrap
    95 % interval over prompts. by_slot: share accepted of the steps that reached each slot.
    engine_mean: as the engine's spec_accept_length has it, the prompt's own token included."""

    family: str
    prompts: int
    tokens: int
    steps: int
    mean: float
    low: float
    high: float
    engine_mean: float
    by_slot: list[float]


def summarise(walks: Sequence[Walk], seed: int = 0) -> list[AcceptLength]:
    """All walks together first, then family by family."""
    families = sorted({walk.family for walk in walks})
    groups = [("", list(walks))]
    groups += [(name, [w for w in walks if w.family == name]) for name in families]
    return [_summary(name, [w for w in group if w.steps], seed) for name, group in groups]


def _summary(family: str, walks: list[Walk], seed: int) -> AcceptLength:
    if not walks:
        return AcceptLength(family, 0, 0, 0, *(float("nan"),) * 4, [])
    committed = np.array([w.tokens - 1 for w in walks], dtype=np.float64)
    steps = np.array([w.steps for w in walks], dtype=np.float64)
    low, high = _interval(committed, steps, seed)
    reached, accepted = (
        np.array([getattr(w, name) for w in walks]).sum(0) for name in ("reached", "accepted")
    )
    total = float(steps.sum())
    return AcceptLength(
        family=family,
        prompts=len(walks),
        tokens=int(committed.sum()),
        steps=int(total),
        mean=float(committed.sum()) / total,
        low=low,
        high=high,
        engine_mean=float(committed.sum() + len(walks)) / total,
        by_slot=[float(a) / max(1.0, float(r)) for a, r in zip(accepted, reached, strict=True)],
    )


def _interval(
    committed: NDArray[np.float64], steps: NDArray[np.float64], seed: int
) -> tuple[float, float]:
    """95 % of the ratio of sums over prompts drawn again."""
    drawn = np.random.default_rng(seed).integers(0, len(steps), (_RESAMPLES, len(steps)))
    ratios = committed[drawn].sum(1) / steps[drawn].sum(1)
    low, high = np.quantile(ratios, (0.025, 0.975))
    return float(low), float(high)
