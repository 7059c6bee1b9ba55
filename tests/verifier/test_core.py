"""The verifier as a whole, with oracle targets in the place of stock engines."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from engines.answers import Answer
from engines.errors import EngineCrashed
from tests.verifier.oracle import EOS, VOCAB, OracleModel, failing_launch, launcher, request
from tests.verifier.settings_for_tests import tiny
from verifier.core import CandidateOutputs, VerifierCore
from verifier.ending import StopRules
from verifier.errors import CalibrationError

RULES = StopRules(VOCAB, frozenset({EOS}))
REQUESTS = [request(n, tokens=50) for n in range(40)]


def rounding(rate: float, seed: int, ulps: float = 1.0):  # type: ignore[no-untyped-def]
    """Commits the second best within `ulps` at a share of the positions where there is one."""
    rng = np.random.default_rng(seed)

    def choose(row: np.ndarray, _: int) -> int:
        best, second = np.argsort(-row, kind="stable")[:2]
        close = 0 < row[best] - row[second] <= 0.125 * ulps
        return int(second if close and rng.random() < rate else best)

    return choose


def answers(model: OracleModel, choose=None, count: int = 40) -> list[Answer]:  # type: ignore[no-untyped-def]
    options = () if choose is None else (choose,)
    return [model.generate(r, *options) for r in REQUESTS[:count]]


@pytest.fixture(scope="module")
def models() -> dict[str, OracleModel]:
    return {"tiny": OracleModel(1, spread=2.0), "tiny-fp32": OracleModel(1, bf16=False)}


@pytest.fixture(scope="module")
def core(models: dict[str, OracleModel]) -> VerifierCore:
    # delta is widened so that 2,000 tokens decide and the suite stays fast.
    core = VerifierCore(tiny(), launcher(models), RULES, delta=0.03, power=0.9)
    model = models["tiny"]
    core.calibrate(answers(model), answers(model, rounding(0.3, 1)), {"made": "by an oracle"})
    return core


@pytest.fixture(scope="module")
def exact(models: dict[str, OracleModel]) -> list[Answer]:
    found = answers(models["tiny-fp32"])
    return [replace(a, request=replace(a.request, id=f"twin-{a.request.id}")) for a in found]


def test_honest_candidate_is_lossless(core, models, exact) -> None:  # type: ignore[no-untyped-def]
    honest = answers(models["tiny"], rounding(0.3, 2))
    asked = [answer.request for answer in exact]
    result = core.verify(honest, exact, requests=REQUESTS, exact_requests=asked)
    assert result.judgement.lossless, result.judgement
    assert result.report.tokens_checked == 2000 and result.exact_report.mismatches == 0
    assert result.report.near_ties > 0


def test_one_wrong_token_in_a_thousand_is_found(core, models, exact) -> None:  # type: ignore[no-untyped-def]
    rng = np.random.default_rng(9)
    planted = []

    def choose(row: np.ndarray, position: int) -> int:
        if rng.random() < 0.001:
            planted.append(position)
            return int(row.argmin())
        return int(row.argmax())

    result = core.verify(answers(models["tiny"], choose), exact)
    assert planted and result.judgement.status == "not_lossless"
    assert result.report.mismatches == len(planted)
    assert result.report.first_bad.first_bad_position == planted[0]


def test_always_taking_a_close_second_is_caught_by_its_rate(core, models, exact) -> None:  # type: ignore[no-untyped-def]
    greedy_for_ties = answers(models["tiny"], rounding(1.0, 3, ulps=2.0))
    result = core.verify(greedy_for_ties, exact)
    assert result.report.mismatches == 0
    assert result.judgement.status == "not_lossless"
    assert "near-tie rate" in result.judgement.reason


def test_a_fault_of_the_fp32_twin_alone_is_enough(core, models, exact) -> None:  # type: ignore[no-untyped-def]
    ids = exact[3].output_ids
    bad = [*exact[:3], replace(exact[3], output_ids=(*ids[:7], (ids[7] + 1) % VOCAB, *ids[8:]))]
    result = core.verify(answers(models["tiny"]), bad)
    assert result.judgement.status == "not_lossless"
    assert result.exact_report.first_bad_position == "twin-r3:7"
    assert core.verify(answers(models["tiny"])).judgement.status == "inconclusive"


def test_malformed_answers_are_never_forced(core, models, exact) -> None:  # type: ignore[no-untyped-def]
    good = answers(models["tiny"])
    before = models["tiny"].forced
    swapped = [good[1], good[0], *good[2:]]
    garbage = [replace(good[0], output_ids=(1, 10**6)), *good[1:]]
    longer = [replace(good[0], output_ids=good[0].output_ids * 2), *good[1:]]
    statuses = [
        core.verify(batch, exact, requests=REQUESTS).judgement.status
        for batch in (swapped, good[:-1], garbage, longer)
    ]
    assert statuses == ["cheating", "cheating", "not_lossless", "not_lossless"]
    assert models["tiny"].forced == before


def test_one_launch_forces_several_candidates_and_repeats_once(models, exact) -> None:  # type: ignore[no-untyped-def]
    launch = launcher(models)
    core = VerifierCore(tiny(), launch, RULES, delta=0.03, power=0.9)
    model = models["tiny"]
    core.calibrate(answers(model), answers(model, rounding(0.3, 1)))
    launch.launched.clear()
    good = answers(model)
    before = model.forced
    batches = [
        CandidateOutputs(tuple(good + good + good), tuple(exact)),
        CandidateOutputs(tuple(good[:1] * 2), tuple(exact), tuple(REQUESTS[:1])),
        CandidateOutputs(tuple(good), tuple(exact)),
    ]
    results = core.verify_many(batches)
    assert launch.launched == ["tiny", "tiny-fp32"]
    assert model.forced - before == 40, "what candidates share is forced once"
    assert [r.judgement.status for r in results] == ["lossless", "cheating", "lossless"]
    report = results[0].report
    assert report is not None
    assert (report.tokens_checked, report.fresh_tokens) == (6000, 2000)


def test_shared_beginnings_count_once(core, models) -> None:  # type: ignore[no-untyped-def]
    whole = models["tiny"].generate(REQUESTS[0])
    half = Answer(replace(REQUESTS[0], max_new_tokens=20), whole.output_ids[:20], "length")
    report = core.verify([half, whole]).report
    assert [r.fresh_tokens for r in report.rows] == [20, 30]


def test_a_dead_stock_engine_is_an_error_not_a_verdict(models) -> None:  # type: ignore[no-untyped-def]
    core = VerifierCore(tiny("fp32"), failing_launch, RULES)
    with pytest.raises(EngineCrashed, match="stock died"):
        core.verify(answers(models["tiny-fp32"]))


def test_bf16_without_calibration_is_an_error(models) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(CalibrationError, match="no A/A"):
        VerifierCore(tiny(), launcher(models), RULES).verify(answers(models["tiny"]))


def test_too_few_answers_calibrate_nothing(models) -> None:  # type: ignore[no-untyped-def]
    core = VerifierCore(tiny(), launcher(models), RULES)
    few = answers(models["tiny"], rounding(0.3, 1), count=4)
    with pytest.raises(CalibrationError, match="calibrate with about"):
        core.calibrate(few, few)
    assert core.calibration is None


def test_fp32_setting_judges_without_calibration(models, exact: Sequence[Answer]) -> None:  # type: ignore[no-untyped-def]
    core = VerifierCore(tiny("fp32"), launcher(models), RULES, detect_one_in=500)
    result = core.verify(exact)
    assert result.judgement.lossless and result.report is not None
    assert core.calibrate(exact, exact).exact
    wrong = [replace(exact[0], output_ids=(3, *exact[0].output_ids[1:])), *exact[1:]]
    assert core.verify(wrong).judgement.status == "not_lossless"


def test_a_repeated_answer_without_its_stop_token_is_nothing_new(models) -> None:  # type: ignore[no-untyped-def]
    model = models["tiny-fp32"]
    asked = (request(n, tokens=400, ignore_eos=False) for n in range(50))
    whole = next(a for a in map(model.generate, asked) if len(a.output_ids) > 2)
    bare = replace(whole, output_ids=whole.output_ids[:-1])
    core = VerifierCore(tiny("fp32"), launcher(models), RULES)
    report = core.verify([bare, bare]).report
    assert report is not None and all(r.ok for r in report.rows)
    assert [r.fresh_tokens for r in report.rows] == [len(whole.output_ids), 0]
