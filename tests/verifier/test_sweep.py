"""Stock against itself in other shapes, with an oracle whose shapes differ by a known amount."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from engines.answers import Answer, GenerationRequest
from tests.verifier.oracle import EOS, VOCAB, OracleModel, OraclePosition, launcher, request
from tests.verifier.settings_for_tests import tiny
from verifier.core import VerifierCore
from verifier.ending import StopRules
from verifier.errors import CalibrationError
from verifier.forced import Pair
from verifier.policy import exact_policy, unlimited
from verifier.shapes import forced_row
from verifier.sweep import BORDERS, Shape, Sweeps, border_requests, differing

RULES = StopRules(VOCAB, frozenset({EOS}))
ULPS = unlimited("bf16_ulp")


def at(*top: tuple[int, float]) -> OraclePosition:
    return OraclePosition(None, None, top)


def test_a_moved_gap_and_a_flip_are_counted_in_ulps_of_the_best() -> None:
    base = [[at((3, 20.0), (4, 19.875), (5, 18.0)), at((7, 40.0), (8, 39.0))]]
    other = [[at((4, 20.125), (3, 20.0), (5, 18.0)), at((7, 40.0), (8, 39.5))]]
    row = forced_row("other", "made up", base, other, ULPS)
    assert (row.tokens, row.near_ties, row.mismatches) == (2, 1, 0)
    assert row.worst_gap == 1.0  # token 4 lies one ULP (0.125) below in `base`
    # 3 over 4 was +1 ULP and is -1: two ULPs; 7 over 8 moved by 0.5, two ULPs of 0.25.
    assert row.worst_change == 2.0
    same = forced_row("same", "made up", base, base, ULPS)
    assert (same.near_ties, same.worst_gap, same.worst_change) == (0, 0.0, 0.0)


def test_a_gap_moves_no_further_in_ulps_where_the_best_is_small() -> None:
    base = [[at((3, 2.0), (4, 1.0)), at((7, 24.0), (8, 23.0))]]
    other = [[at((3, 2.0), (4, 1.5)), at((7, 24.0), (8, 23.5))]]
    assert forced_row("other", "", base, other, ULPS).worst_change == 32.0
    usual = unlimited("bf16_ulp", least_magnitude=24.0)
    assert forced_row("other", "", base, other, usual).worst_change == 4.0


def test_a_choice_outside_stocks_reach_is_no_near_tie() -> None:
    row = forced_row("other", "", [[at((3, 20.0), (4, 19.0))]], [[at((9, 21.0), (3, 20.0))]], ULPS)
    assert row.mismatches == 1


def test_fp32_choices_may_only_part_at_a_tie() -> None:
    base = [[at((3, 20.0), (4, 19.9999))], [at((3, 20.0), (4, 19.9))]]
    other = [[at((4, 20.0), (3, 19.9999))], [at((4, 20.0), (3, 19.9))]]
    row = forced_row("other", "", base, other, exact_policy())
    assert (row.near_ties, row.mismatches) == (1, 1)


def test_borders_are_the_ends_of_prompts_of_these_lengths() -> None:
    long = tuple(range(140))
    answers = [Answer(GenerationRequest("a", long, 4), (1,), "length")]
    answers += [Answer(GenerationRequest("b", (9,) * 20, 4), (1,), "length")]
    found = border_requests(answers)
    assert [len(r.prompt_ids) for r in found] == list(BORDERS)
    assert all(
        r.prompt_ids in (long[-len(r.prompt_ids) :], (9,) * len(r.prompt_ids)) for r in found
    )
    assert {r.prompt_ids[0] for r in found[:3]} & {9}, "short prompts serve the short lengths too"
    assert len(border_requests(answers[1:])) == 3


def noisy(model: OracleModel, ulps: float) -> Shape:
    """Forces with every second position's best value lowered; ULPs of [16, 32)."""

    def force(pairs: Sequence[Pair]) -> list[Sequence[OraclePosition]]:
        found = []
        for prompt, ids in pairs:
            positions = list(model.force(prompt, ids))
            for i in range(0, len(positions), 2):
                (best, value), *rest = positions[i].top
                top = sorted([(best, value - 0.125 * ulps), *rest], key=lambda x: -x[1])
                positions[i] = replace(positions[i], top=tuple(top))
            found.append(positions)
        return found

    return Shape("noisy", "an oracle's", force)


def long_prompts(tokens: int = 50, count: int = 40) -> list[GenerationRequest]:
    return [
        replace(request(n, tokens=tokens), prompt_ids=tuple((n + i) % VOCAB for i in range(70)))
        for n in range(count)
    ]


@pytest.fixture(scope="module")
def model() -> OracleModel:
    return OracleModel(1, spread=2.0)


@pytest.fixture(scope="module")
def asked(model: OracleModel) -> list[Answer]:
    return [model.generate(r) for r in long_prompts()]


def test_calibration_keeps_a_row_for_each_shape(model: OracleModel, asked: list[Answer]) -> None:
    core = VerifierCore(tiny(), launcher({"tiny": model}), RULES, delta=0.03, power=0.9)
    sweeps = Sweeps([noisy(model, 3.0)], model.generate, asked)
    calibration = core.calibrate(asked, asked, sweeps=sweeps)
    rows = {row.shape: row for row in calibration.shapes}
    assert list(rows)[:2] == ["ar", "stock"]
    borders = next(row for name, row in rows.items() if name.startswith("prompts of 15, 16, 17"))
    assert borders.tokens == 6 * 8 and borders.near_ties == 0
    assert rows["restart to restart"].tokens == sum(len(a.output_ids) for a in asked)
    assert rows["restart to restart"].near_ties == 0
    assert rows["noisy"].worst_change == 3.0 and rows["noisy"].near_ties > 0
    assert rows["noisy"].tokens == 12 * 51 + 6 * 9
    assert calibration.worst_gap == 3.0 == core.policy.allowed_gap


def test_noise_above_any_rounding_calibrates_nothing(
    model: OracleModel, asked: list[Answer]
) -> None:
    core = VerifierCore(tiny(), launcher({"tiny": model}), RULES, delta=0.03, power=0.9)
    with pytest.raises(CalibrationError, match="noisy"):
        core.calibrate(asked, asked, sweeps=Sweeps([noisy(model, 9.0)]))
    assert core.calibration is None


class SometimesSmall(OracleModel):
    """Every eighth position's logits lie around 2 instead of 20."""

    def logits(self, context: Sequence[int]) -> np.ndarray:
        return super().logits(context) - (18.0 if len(context) % 8 == 0 else 0.0)


@pytest.mark.parametrize(("ulps", "refused"), [(5.0, False), (9.0, True)])
def test_small_logits_neither_refuse_a_stock_nor_widen_what_is_allowed(
    ulps: float, refused: bool
) -> None:
    model = SometimesSmall(1, spread=2.0)
    asked = [model.generate(r) for r in long_prompts()]
    core = VerifierCore(tiny(), launcher({"tiny": model}), RULES, delta=0.03, power=0.9)
    if refused:
        with pytest.raises(CalibrationError, match="gaps move by 9 bf16_ulp in noisy"):
            core.calibrate(asked, asked, sweeps=Sweeps([noisy(model, ulps)]))
        return
    calibration = core.calibrate(asked, asked, sweeps=Sweeps([noisy(model, ulps)]))
    # 5 ULPs of a logit around 20 are 40 of one around 2.
    assert calibration.worst_gap == 5.0 == core.policy.allowed_gap
    assert 20 < calibration.least_magnitude == core.policy.least_magnitude < 32


def altered(answer: Answer, model: OracleModel) -> Answer:
    """The answer as another process might give it: the second best at position 5, then on."""
    prompt, ids = answer.request.prompt_ids, list(answer.output_ids[:5])
    ids.append(int((-model.logits([*prompt, *ids])).argsort()[1]))
    while len(ids) < len(answer.output_ids):
        ids.append(int(model.logits([*prompt, *ids]).argmax()))
    return replace(answer, output_ids=tuple(ids))


def runner_up_gap(model: OracleModel, answer: Answer) -> float:
    """How far the second best lies below the best at position 5."""
    row = sorted(model.logits([*answer.request.prompt_ids, *answer.output_ids[:5]]))
    return float(row[-1] - row[-2]) or 99.0


def test_answers_that_part_after_a_restart_are_forced(
    model: OracleModel, asked: list[Answer]
) -> None:
    close = next(a for a in asked if runner_up_gap(model, a) <= 0.5)
    other = altered(close, model)
    restarted = [other if a is close else a for a in asked]
    assert differing(asked, restarted) == [other]
    core = VerifierCore(tiny(), launcher({"tiny": model}), RULES, delta=0.03, power=0.9)
    calibration = core.calibrate(asked, asked, sweeps=Sweeps(restarted=restarted))
    row = next(r for r in calibration.shapes if r.shape == "restart to restart")
    assert row.near_ties == 1 and 0 < row.worst_gap <= 4


def test_fp32_may_not_part_after_a_restart() -> None:
    model = OracleModel(1, bf16=False)
    answers = [model.generate(r) for r in long_prompts(count=4)]
    core = VerifierCore(tiny("fp32"), launcher({"tiny-fp32": model}), RULES)
    core.calibrate(answers, answers, sweeps=Sweeps(restarted=answers))
    parted = [altered(answers[0], model), *answers[1:]]
    with pytest.raises(CalibrationError, match="r0 differently in FP32"):
        core.calibrate(answers, answers, sweeps=Sweeps(restarted=parted))


def test_log_probabilities_are_calibrated_in_nats(asked: list[Answer]) -> None:
    model = OracleModel(1, spread=2.0)

    def logprobs(prompt: Sequence[int], ids: Sequence[int]) -> list[OraclePosition]:
        found = []
        for position in model.force(prompt, ids):
            top = tuple((i, v - 30.0) for i, v in position.top)
            own = None if position.token_logit is None else position.token_logit - 30.0
            found.append(replace(position, top=top, token_logit=own, raw=False))
        return found

    class Logprobs(OracleModel):
        force = staticmethod(logprobs)  # type: ignore[assignment]

    core = VerifierCore(tiny(), launcher({"tiny": Logprobs()}), RULES, delta=0.03, power=0.9)
    calibration = core.calibrate(asked, asked)
    assert calibration.unit == "nats"
    assert core.policy.unit == "nats" and core.policy.allowed_gap == 0.25
    result = core.verify(asked)
    assert result.report is not None and result.report.mismatches == 0
    ids = asked[0].output_ids
    wrong = replace(asked[0], output_ids=(*ids[:7], (ids[7] + 5) % VOCAB, *ids[8:]))
    judged = core.verify([wrong, *asked[1:]]).judgement
    assert judged.status == "not_lossless" and "nats" in judged.reason
