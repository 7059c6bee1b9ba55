"""Positions where stock contradicts itself or FP32, and wrong tokens beside them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest

from engines.answers import Answer
from tests.verifier.oracle import EOS, VOCAB, OracleModel, OraclePosition, launcher, request
from tests.verifier.settings_for_tests import tiny
from verifier.calibration import Calibration
from verifier.core import VerifierCore, VerifierResult
from verifier.ending import StopRules
from verifier.forced import Pair, Position
from verifier.second_look import MOVED, SECOND_LOOKS, Forced, OtherPaths, SecondLook

RULES = StopRules(VOCAB, frozenset({EOS}))
REQUESTS = [request(n, tokens=50) for n in range(40)]
MODELS = {"tiny": OracleModel(1, spread=2.0), "tiny-fp32": OracleModel(1, bf16=False)}
TWIN = [MODELS["tiny-fp32"].generate(r) for r in REQUESTS]


class Moved(OracleModel):
    """As the model, but for contexts of some lengths, whose values all lie `by` lower."""

    def __init__(self, by: float, lengths: Sequence[int]) -> None:
        super().__init__(1, spread=2.0)
        self.by, self.lengths = by, lengths

    def logits(self, context: Sequence[int]) -> np.ndarray:
        found = super().logits(context)
        return found - self.by if len(context) in self.lengths else found


@pytest.fixture(scope="module")
def calibration() -> Calibration:
    core = VerifierCore(tiny(), launcher(MODELS), RULES, delta=0.03, power=0.9)
    stock = [MODELS["tiny"].generate(r) for r in REQUESTS]
    return core.calibrate(stock, stock)


def wrong_at(*places: int) -> list[Answer]:
    """Answers of which the first has its worst token at those places."""

    def choose(row: np.ndarray, position: int) -> int:
        return int(row.argmin() if position in places else row.argmax())

    first = MODELS["tiny"].generate(REQUESTS[0], choose)
    return [first, *(MODELS["tiny"].generate(r) for r in REQUESTS[1:])]


def paths(*models: OracleModel) -> OtherPaths:
    def forced(pairs: Sequence[Pair]) -> list[list[Sequence[Position]]]:
        return [[model.force(*pair) for pair in pairs] for model in models]

    return forced


def never(pairs: Sequence[Pair]) -> list[list[Sequence[Position]]]:
    raise AssertionError("asked")


def in_fp32(choices: Mapping[int, int]) -> Callable[[Sequence[Pair]], Forced]:
    """The twin, which at the places of the first answer that `choices` names prefers those ids."""

    class Twin(OracleModel):
        def logits(self, context: Sequence[int]) -> np.ndarray:
            found = super().logits(context)
            if (token := choices.get(len(context) - len(REQUESTS[0].prompt_ids))) is not None:
                found[token] = found.max() + 0.01
            return found

    twin = Twin(1, bf16=False, spread=2.0)
    return lambda pairs: [twin.force(*pair) for pair in pairs]


def judged(
    calibration: Calibration,
    batch: Sequence[Answer],
    other_paths: OtherPaths | None,
    twin: Callable[[Sequence[Pair]], Forced] | None = None,
) -> VerifierResult:
    core = VerifierCore(
        tiny(),
        launcher(MODELS),
        RULES,
        calibration=calibration,
        delta=0.03,
        power=0.9,
        detect_one_in=250,
        second_look=None if other_paths is None else SecondLook(other_paths, twin),
    )
    return core.verify(batch, TWIN)


PLACE = 11
CONTEXT = len(REQUESTS[0].prompt_ids) + PLACE


def test_where_stock_contradicts_itself_nothing_is_decided(calibration: Calibration) -> None:
    moved = Moved(10.0, [CONTEXT])
    result = judged(calibration, wrong_at(PLACE), paths(MODELS["tiny"], moved))
    assert result.judgement.lossless, result.judgement
    assert result.report is not None
    totals = result.report.totals()
    assert (totals["undecided"], totals["mismatches"]) == (1, 0)
    assert totals["tokens_checked"] == totals["fresh_tokens"] == 50 * len(REQUESTS) - 1
    assert result.report.rows[0].undecided == 1


def test_a_wrong_token_elsewhere_in_the_answer_stands(calibration: Calibration) -> None:
    moved = Moved(10.0, [CONTEXT])
    result = judged(calibration, wrong_at(PLACE, PLACE + 5), paths(moved))
    assert result.judgement.status == "not_lossless"
    assert result.report is not None
    assert result.report.first_bad_position == f"r0:{PLACE + 5}"
    assert (result.report.mismatches, result.report.rows[0].undecided) == (1, 1)


# ULPs are of the usual best value, in [16, 32): an eighth.
@pytest.mark.parametrize("by", [0.0, MOVED["bf16_ulp"] / 8])
def test_stock_that_is_as_sure_as_ever_excuses_nothing(calibration: Calibration, by: float) -> None:
    result = judged(calibration, wrong_at(PLACE), paths(Moved(by, [CONTEXT])))
    assert result.judgement.status == "not_lossless"
    assert result.judgement.evidence["caught_by"] == "token_forcing"
    assert judged(calibration, wrong_at(PLACE), None).judgement.status == "not_lossless"


def test_a_token_that_fp32_chooses_is_not_wrong(calibration: Calibration) -> None:
    batch = wrong_at(PLACE)
    chosen = in_fp32({PLACE: batch[0].output_ids[PLACE]})
    result = judged(calibration, batch, never, chosen)
    assert result.judgement.lossless, result.judgement
    assert result.report is not None
    assert (result.report.mismatches, result.report.rows[0].undecided) == (0, 1)


def test_fp32_excuses_that_token_only(calibration: Calibration) -> None:
    batch, same = wrong_at(PLACE, PLACE + 5), paths(MODELS["tiny"])
    token = batch[0].output_ids[PLACE]
    result = judged(calibration, batch, same, in_fp32({PLACE: token}))
    assert result.report is not None
    assert result.report.first_bad_position == f"r0:{PLACE + 5}"
    assert (result.report.mismatches, result.report.rows[0].undecided) == (1, 1)
    # Another token than the committed one, whichever it is, excuses nothing.
    other = in_fp32({PLACE: (token + 1) % VOCAB})
    assert judged(calibration, wrong_at(PLACE), same, other).judgement.status == "not_lossless"


def fp32_lower(by: float, *lengths: int) -> Callable[[Sequence[Pair]], Forced]:
    """The twin, whose values all lie `by` lower after contexts of those lengths."""
    twin = Moved(by, lengths)
    twin.bf16 = False
    return lambda pairs: [twin.force(*pair) for pair in pairs]


def test_where_fp32_is_far_from_stock_nothing_is_decided(calibration: Calibration) -> None:
    # A nat beyond the limit: no other path need be asked.
    far = fp32_lower(MOVED["bf16_ulp"] / 8 + 1.0, CONTEXT)
    result = judged(calibration, wrong_at(PLACE), never, far)
    assert result.judgement.lossless, result.judgement
    assert result.report is not None
    assert (result.report.mismatches, result.report.rows[0].undecided) == (0, 1)
    result = judged(calibration, wrong_at(PLACE, PLACE + 5), paths(MODELS["tiny"]), far)
    assert result.report is not None
    assert result.report.first_bad_position == f"r0:{PLACE + 5}"
    assert (result.report.mismatches, result.report.rows[0].undecided) == (1, 1)


def test_a_path_and_fp32_on_either_side_of_stock_are_far_from_one_another(
    calibration: Calibration,
) -> None:
    half = MOVED["bf16_ulp"] / 8 / 2 + 0.5
    up, down = Moved(-half, [CONTEXT]), fp32_lower(half, CONTEXT)
    assert judged(calibration, wrong_at(PLACE), paths(up), down).judgement.lossless
    same = paths(MODELS["tiny"])
    assert judged(calibration, wrong_at(PLACE), same, down).judgement.status == "not_lossless"


def test_fp32_that_is_no_number_excuses_nothing(calibration: Calibration) -> None:
    def broken(pairs: Sequence[Pair]) -> Forced:
        found = fp32_lower(10.0, CONTEXT)(pairs)
        return [[replace(p, top=((0, float("nan")),)) for p in positions] for positions in found]

    result = judged(calibration, wrong_at(PLACE), paths(Moved(10.0, [CONTEXT])), broken)
    assert result.judgement.status == "not_lossless"


def test_many_wrong_tokens_get_no_second_look(calibration: Calibration) -> None:
    places = range(5, 6 + SECOND_LOOKS)
    batch = wrong_at(*places)
    chosen = in_fp32({place: batch[0].output_ids[place] for place in places})
    assert judged(calibration, batch, never, chosen).judgement.status == "not_lossless"
    # Nor do right ones: nothing is asked of stock.
    assert judged(calibration, wrong_at(), never).judgement.lossless


def test_values_that_are_no_numbers_excuse_nothing(calibration: Calibration) -> None:
    class Broken(OracleModel):
        def force(
            self, prompt_ids: Sequence[int], output_ids: Sequence[int]
        ) -> list[OraclePosition]:
            found = super().force(prompt_ids, output_ids)
            return [replace(p, top=((p.top[0][0], float("nan")), *p.top[1:])) for p in found]

    result = judged(calibration, wrong_at(PLACE), paths(Broken(1, spread=2.0)))
    assert result.judgement.status == "not_lossless"


def test_fp32_knows_no_such_positions(calibration: Calibration) -> None:
    ids = TWIN[3].output_ids
    worst = int(MODELS["tiny-fp32"].logits([*TWIN[3].request.prompt_ids, *ids[:7]]).argmin())
    bad = [*TWIN[:3], replace(TWIN[3], output_ids=(*ids[:7], worst, *ids[8:]))]
    core = VerifierCore(
        tiny(),
        launcher(MODELS),
        RULES,
        calibration=calibration,
        delta=0.03,
        power=0.9,
        second_look=SecondLook(never, never),
    )
    result = core.verify(wrong_at(), bad)
    assert result.judgement.status == "not_lossless"
    assert result.judgement.evidence["caught_in"] == "fp32_exact"
