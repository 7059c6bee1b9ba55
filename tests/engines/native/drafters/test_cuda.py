"""On a GPU: the CPU's drafts in FP32, and a published drafter at full shape in BF16."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from native_engine.drafters.load import load_drafter
from native_engine.drafters.protocol import Ask
from native_engine.drafters.published import published
from native_engine.targets.protocol import Rows
from tests.engines.native.drafters.fake_target import FakeTarget
from tests.engines.native.drafters.synthetic import write_checkpoint
from tests.engines.native.drafters.test_rounds import KINDS

pytestmark = pytest.mark.gpu
PROMPTS = [[3, 14, 15, 9, 26] * 6, [9, 26, 5], [9, 7, 9, 3] * 3]


@pytest.mark.parametrize("kind", KINDS)
def test_drafts_equal_the_cpus(tmp_path: Path, kind: str) -> None:
    write_checkpoint(tmp_path, KINDS[kind])
    hidden, drafts = [], []
    for device in ("cpu", "cuda"):
        target = FakeTarget(device=device)
        drafter = load_drafter(tmp_path, target, torch.float32, target.device)
        drafter.open(4, 60)
        counts = tuple(len(ids) - 1 for ids in PROMPTS)
        taps = [target.tap(slot, range(n), len(drafter.taps)) for slot, n in enumerate(counts)]
        ids = torch.tensor([t for prompt in PROMPTS for t in prompt[:-1]], device=device)
        joined = [torch.cat(tap) for tap in zip(*taps, strict=True)]
        drafter.observe(Rows(ids, (0, 3, 1), (0, 0, 0), counts), joined)
        asks = [Ask(slot, ids, 3) for slot, ids in zip((0, 3, 1), PROMPTS, strict=True)]
        hidden.append(drafter.hidden(asks).cpu())
        drafts.append(drafter.propose(asks).tokens)
        asks = [Ask(3, PROMPTS[1], 3, 1.0, torch.Generator(device).manual_seed(1))]
        q = drafter.propose(asks).q[0]
        assert q is not None and (q.sum(-1) - 1).abs().max() < 1e-5
    assert (hidden[0] - hidden[1]).abs().max() < 1e-4
    assert drafts[0] == drafts[1]


@pytest.mark.parametrize("name", ["qwen3.8-27b-dflash2", "muse-glimmer-30b-dspark"])
def test_a_published_drafter_runs_at_full_shape(name: str) -> None:
    config = published(name).config
    target = FakeTarget()
    target.vocab_size, target.hidden_size = config.vocab_size, config.hidden_size
    target.layers, target.dtype, target.device = 64, torch.bfloat16, torch.device("cuda")
    shape = (config.vocab_size, config.hidden_size)
    target.table = torch.randn(shape, device="cuda", dtype=torch.bfloat16)
    target.head_weight = target.table
    drafter = load_drafter(name, target, torch.bfloat16, target.device, "dummy")
    drafter.open(16, 3000)
    starts = [2500 - 100 * slot for slot in range(16)]
    for slot, start in enumerate(starts):
        rows = Rows(torch.zeros(start, dtype=torch.int64), (slot,), (0,), (start,))
        taps = [
            torch.randn(start, config.hidden_size, device="cuda", dtype=torch.bfloat16)
            for _ in config.taps
        ]
        drafter.observe(rows, taps)
    asks = [Ask(slot, range(start + 1), 99) for slot, start in enumerate(starts)]
    assert [len(d) for d in drafter.propose(asks).tokens] == [config.max_drafts] * 16
