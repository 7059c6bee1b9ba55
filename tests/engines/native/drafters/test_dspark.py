"""DSpark's confidences, their calibration, and drafts cut by them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from engines.training.calibration import calibration_error, fit_temperatures
from native_engine.drafters.load import load_drafter
from native_engine.drafters.options import DrafterOptions
from native_engine.drafters.protocol import Ask
from native_engine.drafters.scheduler import StepRate, threshold, throughput
from native_engine.targets.protocol import Rows
from tests.engines.native.drafters.fake_target import FakeTarget
from tests.engines.native.drafters.reference import Reference
from tests.engines.native.drafters.synthetic import DEEPSPEC, write_checkpoint

PROMPTS = [[3, 14, 15], [9, 26, 5, 35, 8], [9, 7, 9, 3]]
PROFILE = {"batch_tokens": [1, 4, 8, 32], "steps_per_second": [100.0, 99.0, 90.0, 40.0]}


@pytest.mark.parametrize("schedule", ["threshold", "throughput"])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_drafts_are_cut_where_their_confidences_say(
    tmp_path: Path, schedule: str, temperature: float
) -> None:
    weights, target = write_checkpoint(tmp_path, DEEPSPEC), FakeTarget()
    reference = Reference(DEEPSPEC, weights, target.table, target.head_weight)
    drafts, decided_on = {}, []
    for rule in ("none", schedule):
        options = DrafterOptions(schedule=rule, threshold=0.55, **PROFILE)
        drafter = load_drafter(
            tmp_path, target, torch.float32, torch.device("cpu"), options=options
        )
        drafter.open(4, 30)
        for slot, ids in enumerate(PROMPTS):
            rows = Rows(torch.tensor(ids[:-1]), (slot,), (0,), (len(ids) - 1,))
            drafter.observe(rows, target.tap(slot, range(len(ids) - 1), 3))
        asks = [
            Ask(slot, ids, 4 if slot == 1 else 9, temperature, torch.Generator().manual_seed(slot))
            for slot, ids in enumerate(PROMPTS)
        ]
        if rule != "none":
            decide = drafter._schedule
            drafter._schedule = lambda c, decide=decide: decided_on.append(c) or decide(c)
        drafts[rule] = drafter.propose([*asks, Ask(3, [1], 0)])
    whole, cut = drafts["none"], drafts[schedule]
    assert [len(d) for d in whole.tokens] == [5, 4, 5, 0]
    confidences = [
        reference.confidences(
            reference.hidden(ids, target.tap(slot, range(len(ids) - 1), 3)), ids[-1], draft
        )[: len(draft)]
        for slot, (ids, draft) in enumerate(zip(PROMPTS, whole.tokens, strict=False))
    ]
    for seen, expected in zip(decided_on[0], [*confidences, []], strict=True):
        assert seen == pytest.approx(expected, abs=1e-5)
    rule = throughput(StepRate(*PROFILE.values())) if schedule == "throughput" else threshold(0.55)
    lengths = rule([*confidences, []])
    assert 0 < sum(lengths) < 14
    assert cut.tokens == [d[:n] for d, n in zip(whole.tokens, lengths, strict=True)]
    for q, n in zip(cut.q[:3], lengths, strict=False):
        assert (q is None) == (temperature == 0)
        assert q is None or q.shape[0] == n


def test_sequential_temperatures_undo_a_known_distortion() -> None:
    generator = torch.Generator().manual_seed(2)
    true = torch.randn(20_000, 3, generator=generator) * 1.5 + 0.5
    happened = torch.rand(true.shape, generator=generator) < torch.sigmoid(true)
    accepted = happened.long().cumprod(dim=1).sum(dim=1).tolist()
    distortion = torch.tensor([2.0, 0.5, 3.0])
    found = fit_temperatures(true * distortion, accepted)
    assert found == pytest.approx(distortion.tolist(), rel=0.15)

    def error(temperatures: torch.Tensor) -> float:
        survival = torch.sigmoid(true * distortion / temperatures).prod(dim=1)
        return calibration_error(survival, (torch.tensor(accepted) > 2).float())

    assert error(torch.tensor(found)) < 0.02 < error(torch.ones(3))
