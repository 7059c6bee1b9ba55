"""Losses and their gradients against plain float64 formulas, slot by slot."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from engines.training.blocks import Blocks, make_blocks, sample_anchors
from engines.training.corpus import Batch
from engines.training.drafter_model import DrafterModel
from engines.training.head_loss import _largest
from engines.training.losses import PARTS, drafter_losses
from engines.training.options import TrainOptions
from tests.engines.training.small import KINDS, random_model

VOCAB, HIDDEN = 512, 12
TARGET = {
    "hidden_size": HIDDEN,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 8,
    "vocab_size": VOCAB,
    "rms_norm_eps": 1e-5,
    "num_hidden_layers": 4,
    "rope_theta": 1e4,
}


def models(options: TrainOptions) -> DrafterModel:
    from engines.training.drafter_config import config_json

    raw = config_json(replace(options, conv_group=4, mask_token=1), TARGET)
    return random_model(raw).double()


def case(model: DrafterModel, seed: int = 0) -> tuple[Tensor, Blocks, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    slots = model.config.max_drafts

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    tokens = torch.randint(0, VOCAB, (2, 20), generator=generator)
    batch = Batch(tokens, torch.tensor([20, 13]), torch.tensor([4, 7]))
    anchors, fresh = sample_anchors(batch, 6, generator)
    blocks = make_blocks(batch, anchors, fresh, model.config.block_size, slots, 1)
    return draw(2, 6, slots, HIDDEN), blocks, draw(VOCAB, HIDDEN) * 0.5, draw(2, 20, HIDDEN)


def brute_force(
    model: DrafterModel,
    hidden: Tensor,
    blocks: Blocks,
    head: Tensor,
    final: Tensor,
    o: TrainOptions,
) -> dict[str, Tensor]:
    """One slot at a time."""
    sums: dict[str, Any] = {name: 0.0 for name in PARTS}
    weight, chosen_weight = 0.0, 0.0
    for n in range(hidden.shape[0]):
        for a in range(hidden.shape[1]):
            terms = []
            for k in range(hidden.shape[2]):
                h, y, before = (
                    hidden[n, a, k],
                    int(blocks.labels[n, a, k]),
                    int(blocks.previous[n, a, k]),
                )
                if not bool(blocks.valid[n, a, k]):
                    break
                logits = head @ h
                unary = logits
                if model.markov_head is not None:
                    latent = model.markov_head.markov_w1.weight[before]
                    logits = logits + model.markov_head.markov_w2.weight @ latent
                p = torch.softmax(logits, 0)
                q = torch.softmax(head @ final[n, int(blocks.anchors[n, a]) + k], 0)
                ce = -(1 - o.soft) * p[y].log() - o.soft * (q * p.log()).sum()
                l1 = (p - q).abs().sum()
                term: dict[str, Any] = {"p": float(p[y].detach()), "ce": ce, "l1": l1}
                if model.candidate_selector is not None:
                    s = model.candidate_selector
                    ids = unary.topk(o.selector_top_k).indices
                    path = s.predecessor_codebook[before] * (s.hidden_projection.weight @ h)
                    scores = torch.stack([unary[b] + path @ s.successor_codebook[b] for b in ids])
                    if y in ids.tolist():
                        at = ids.tolist().index(y)
                        term["selector"] = -torch.log_softmax(scores, 0)[at]
                if model.confidence_head is not None:
                    x = torch.cat((h, latent))
                    if o.confidence_detach:
                        x = x.detach()
                    c = torch.sigmoid(model.confidence_head.proj(x))[0]
                    right = float(logits.argmax() == y)
                    overlap = float(1 - 0.5 * l1.detach())
                    label = overlap if o.confidence_label == "overlap" else right
                    term["confidence"] = -(label * c.log() + (1 - label) * (1 - c).log())
                terms.append(term)
            for k, term in enumerate(terms):
                if o.weights == "decay":
                    w = math.exp(-k / o.gamma)
                elif o.weights == "accept":
                    w = math.prod(t["p"] for t in terms[:k])
                else:
                    w = sum(math.prod(t["p"] for t in terms[: j + 1]) for j in range(k, len(terms)))
                weight += w
                chosen_weight += w if "selector" in term else 0.0
                for name in ("ce", "l1", "selector", "confidence"):
                    sums[name] = sums[name] + w * term.get(name, 0.0)
    for name in ("ce", "l1", "confidence"):
        sums[name] = sums[name] / weight
    sums["selector"] = sums["selector"] / max(chosen_weight, 1e-30)
    sums["loss"] = o.ce * sums["ce"] + o.l1 * sums["l1"]
    sums["loss"] = sums["loss"] + o.selector * sums["selector"] + o.confidence * sums["confidence"]
    return sums


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        ("dflash2", {}),
        ("dflash2", {"weights": "accept", "selector_top_k": 64, "selector": 0.5}),
        ("dflash2", {"soft": 0.3, "l1": 0.4, "weights": "expected"}),
        ("dspark", {}),
        ("dspark", {"ce": 0.1, "l1": 0.9, "confidence_label": "overlap"}),
        ("dspark", {"weights": "accept", "confidence_detach": True, "soft": 1.0}),
    ],
)
def test_losses_and_gradients_are_the_formulas(kind: str, changes: dict[str, Any]) -> None:
    options = replace(KINDS[kind], chunk_rows=9, **{"selector_top_k": 8, **changes})
    model = models(options)
    hidden, blocks, head, final = case(model)
    hidden.requires_grad_(True)
    wanted = [hidden, *model.parameters()]
    needed = final if options.needs_target_distribution else None
    found = drafter_losses(model, hidden, blocks, head, needed, options)
    got = torch.autograd.grad(found.total, wanted, allow_unused=True)
    expected = brute_force(model, hidden, blocks, head, final, options)
    for name, value in zip(PARTS, found.parts.tolist(), strict=True):
        if name != "l1" or options.needs_target_distribution:
            assert value == pytest.approx(
                float(torch.as_tensor(expected[name]).detach()), rel=1e-6, abs=1e-9
            ), name
    due = torch.autograd.grad(expected["loss"], wanted, allow_unused=True)
    for ours, theirs in zip(got, due, strict=True):
        if theirs is None:
            assert ours is None or not ours.any()
        else:
            torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-7)
    assert found.tries.tolist() == blocks.valid.flatten(0, 1).sum(0).tolist()


def test_the_largest_logits_are_found_by_groups() -> None:
    logits = torch.randn(50, 256 * 40, generator=torch.Generator().manual_seed(3))
    for count in (1, 16):
        expected = logits.topk(count).indices
        assert torch.equal(_largest(logits, count), expected)
    assert _largest(logits, 0).shape == (50, 0)
    assert torch.equal(_largest(logits[:, :300], 5), logits[:, :300].topk(5).indices)


def test_anchors_spread_over_the_answer_and_are_counted_once() -> None:
    tokens = torch.arange(200).view(2, 100)
    batch = Batch(tokens, torch.tensor([100, 12]), torch.tensor([20, 8]))
    generator = torch.Generator().manual_seed(0)
    seen = torch.zeros(2, 100, dtype=torch.long)
    for _ in range(50):
        anchors, fresh = sample_anchors(batch, 16, generator)
        assert anchors[0].tolist() == sorted(anchors[0].tolist())
        assert int(fresh[1].sum()) <= 3 and int(fresh[0].sum()) > 12
        seen.scatter_add_(1, anchors, fresh.long())
    assert bool((seen[0, 20:99] > 0).all()) and not seen[0, :20].any() and not seen[0, 99:].any()
    # Position 11 is the last token: nothing follows it.
    assert seen[1].nonzero().flatten().tolist() == [8, 9, 10]
    blocks = make_blocks(batch, torch.tensor([[97], [8]]), torch.ones(2, 1).bool(), 5, 4, 7)
    assert blocks.ids[:, 0].tolist() == [[97, 7, 7, 7, 7], [108, 7, 7, 7, 7]]
    assert blocks.labels[0, 0, :2].tolist() == [98, 99]
    assert blocks.previous[1, 0, :3].tolist() == [108, 109, 110]
    assert blocks.valid[:, 0].tolist() == [[True, True, False, False], [True, True, True, False]]
