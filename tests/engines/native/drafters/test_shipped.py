"""The drafters that ship with the repository, in the literal re-statement of the format."""

from __future__ import annotations

import json

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from native_engine.drafters.load import load_drafter
from native_engine.drafters.protocol import Ask
from native_engine.targets.protocol import Rows
from settings.paths import checkout_root
from tests.engines.native.drafters.reference import Reference

VOCAB, HIDDEN, LAYERS = 49152, 576, 30


class Wide:
    """What a drafter uses of a target of SmolLM2's width: random tables."""

    vocab_size, hidden_size, layers = VOCAB, HIDDEN, LAYERS
    dtype, device = torch.float32, torch.device("cpu")

    def __init__(self) -> None:
        generator = torch.Generator().manual_seed(5)
        self.table = 0.1 * torch.randn(VOCAB, HIDDEN, generator=generator)

    def embed(self, ids: Tensor) -> Tensor:
        return self.table[ids]

    def head(self, normed: Tensor) -> Tensor:
        return normed @ self.table.T


@pytest.mark.parametrize("kind", ["dflash2", "dspark"])
def test_a_shipped_drafter_is_what_its_equations_say(kind: str) -> None:
    folder = checkout_root() / f"engines/drafters/smollm2-135m-{kind}"
    raw = json.loads((folder / "config.json").read_text())
    weights = load_file(str(folder / "model.safetensors"))
    assert {tensor.dtype for tensor in weights.values()} == {torch.bfloat16}
    target = Wide()
    reference = Reference(raw, weights, target.table, target.table)
    drafter = load_drafter(folder, target, torch.float32, torch.device("cpu"))
    drafter.open(1, 32)
    drafter.reset(0)
    generator = torch.Generator().manual_seed(7)
    ids = torch.randint(VOCAB, (8,), generator=generator).tolist()
    scale = torch.tensor([1.0, 3.0, 10.0, 30.0])[:, None, None]
    taps = list(scale * torch.randn(4, len(ids) - 1, HIDDEN, generator=generator))
    for begin, end in ((0, 4), (4, 7)):
        rows = Rows(torch.tensor(ids[begin:end]), (0,), (begin,), (end - begin,))
        drafter.observe(rows, [tap[begin:end] for tap in taps])
    ask = Ask(0, ids, 7, 0.0, None)
    expected = reference.hidden(ids, taps)
    difference = (drafter.hidden([ask])[0].double() - expected).abs().max()
    assert difference < 1e-4 * expected.abs().max()
    assert drafter.propose([ask]).tokens == [reference.greedy(expected, ids[-1], 7)]
