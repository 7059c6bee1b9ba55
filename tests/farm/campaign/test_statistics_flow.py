"""What the flow does with its statistics: a placebo that excludes 1, the level of a confirmation,
candidates out of reach, shrunken ratios."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from farm.campaign.decide import decide
from farm.campaign.jobs import MeasureOutcome
from farm.results import RatioInterval, report_from_json
from farm.verdicts import Verdict
from tests.farm.campaign.simulation import HALF_WIDTH, Effect, Farm, World, as_json, proposal

HOT = 1.05  # far outside the simulated half-width


def search(folder: Path, effects: dict[str, Effect], **world: Any) -> Farm:
    named = {1: [proposal(name) for name in effects]}
    return Farm(folder, World(effects, **world), named)


def test_a_placebo_that_excludes_1_by_chance_is_measured_again(tmp_path: Path) -> None:
    farm = search(tmp_path, {"a": Effect(1.2)}, placebo=(1.03, 1.03, 1.03, 0.98, 0.98, 0.98))
    end = farm.run()
    units = [u for u in farm.workers.submitted if u.startswith("aa:")]
    assert units == [f"aa:{n}" for n in range(6)]
    assert end.report.promoted == "r1-00-a"
    assert not [note for note in end.report.notes if "excludes 1" in note]


@pytest.mark.parametrize("bias", [HOT, 1 / HOT])
def test_no_promotion_while_stock_is_not_as_fast_as_itself(tmp_path: Path, bias: float) -> None:
    effects = {"a": Effect(1.3), "slow": Effect(0.8), "bad": Effect(1.5, lossy=True)}
    farm = search(tmp_path, effects, placebo=(bias,) * 6)
    end = farm.run()
    assert farm.verdicts(end) == {
        "a": "invalid_environment",
        "slow": "not_faster",
        "bad": "not_lossless",
    }
    row = end.report.candidates[0]
    assert "which excludes 1" in row.decision.reason and "otherwise: x1.3" in row.decision.reason
    assert row.to_stock is not None and row.to_stock.ratio == pytest.approx(1.3)
    assert end.winner is None and end.report.promoted is None
    assert not [u for u in farm.workers.submitted if u.startswith("confirm:")]
    assert any("nothing is promoted" in note for note in end.report.notes)


def test_a_quiet_placebo_is_measured_once(tmp_path: Path) -> None:
    farm = search(tmp_path, {"a": Effect(1.2)})
    farm.run()
    assert [u for u in farm.workers.submitted if u.startswith("aa:")] == ["aa:0", "aa:1", "aa:2"]


def test_the_arms_of_placebo_and_confirmation_change_places(tmp_path: Path) -> None:
    farm = search(tmp_path, {"a": Effect(1.2)})
    first: dict[str, str] = {}
    submit = farm.workers.submit

    def watch(job: Any) -> None:
        if hasattr(job, "arms"):
            first[job.unit] = job.arms[0].label
        submit(job)

    farm.workers.submit = watch  # type: ignore[method-assign]
    farm.run()
    assert [first[f"aa:{n}"] for n in range(3)] == ["stock", "stock_b", "stock"]
    confirming = [first[f"confirm:r1-00-a:{n}"] for n in range(3)]
    assert confirming == ["candidate", "stock", "candidate"]


def test_who_was_accepted_at_screening_enters_the_level(tmp_path: Path) -> None:
    alone = search(tmp_path / "alone", {"a": Effect(1.2), "noop": Effect()}).run().report
    assert alone.confirmation_confidence == pytest.approx(0.95)
    assert alone.candidates_screened == 2
    three = search(tmp_path / "three", {n: Effect(1.1) for n in ("a", "b", "c")}).run().report
    # Three mechanisms and the merge of all of them were accepted.
    assert three.confirmation_confidence == pytest.approx(1 - 0.05 / 4)
    assert three.candidates_screened == 4
    assert three.final_to_stock is not None and three.final_to_stock.confidence == 0.95
    winner = next(c for c in three.candidates if c.candidate_id == three.promoted)
    assert winner.decision.evidence["confirmation"]["confidence"] == pytest.approx(0.9875)  # type: ignore[index]
    assert as_json(report_from_json(as_json(three))) == as_json(three)


def test_the_stricter_level_decides_and_the_reason_says_so(tmp_path: Path) -> None:
    """x1.04 clears the floor of 1.015 at 95 % (half-width 2 %), not at 98.75 %."""
    effects = {"a": Effect(1.04)} | {n: Effect(1.3, heldout=1.0) for n in ("b", "c")}
    lone = search(tmp_path / "lone", {"a": Effect(1.04)}).run()
    assert lone.report.promoted == "r1-00-a"
    farm = search(tmp_path / "many", {n: Effect(e.search, e.heldout) for n, e in effects.items()})
    end = farm.run()
    assert end.report.promoted is None
    rows = [c for c in end.report.candidates if "on held-out" in c.decision.reason]
    assert rows and "(98.75" in rows[0].decision.reason


def test_a_candidate_out_of_reach_is_never_accepted_nor_called_lossy() -> None:
    outcome = MeasureOutcome("ok", recording={}, out_of_reach=True)

    def verdict(low: float, high: float) -> Verdict:
        ratio = RatioInterval((low * high) ** 0.5, low, high, "native-x", 5, "m")
        return decide(outcome, ratio, None, 1.02).verdict

    assert verdict(0.97, 1.06) is Verdict.INCONCLUSIVE
    assert verdict(0.97, 1.01) is Verdict.NOT_FASTER
    assert verdict(1.05, 1.06) is Verdict.INCONCLUSIVE


def test_every_screening_knows_the_bar_it_must_reach(tmp_path: Path) -> None:
    farm = search(tmp_path, {"a": Effect(1.2)})
    bars: dict[str, float] = {}
    submit = farm.workers.submit

    def watch(job: Any) -> None:
        if job.unit.startswith("measure:"):
            bars[job.unit] = job.bar
        submit(job)

    farm.workers.submit = watch  # type: ignore[method-assign]
    end = farm.run()
    assert bars == {"measure:r1-00-a": pytest.approx(end.report.aa_floor * (1 + HALF_WIDTH))}  # type: ignore[operator]


def test_the_decomposition_and_the_shrunken_ratio_are_in_the_report(tmp_path: Path) -> None:
    effects = {"a": Effect(1.2), "b": Effect(1.02), "c": Effect(0.99), "d": Effect(1.01)}
    end = search(tmp_path, effects).run()
    assert end.winner is not None and end.winner.ratio_shrunken is not None
    for row in end.report.candidates:
        assert row.tau_interval is not None and row.tau_interval.low < 1 < row.tau_interval.high
        assert row.step_interval == row.to_baseline == row.to_stock
        assert row.ratio_shrunken is not None and row.to_stock is not None
        assert abs(row.ratio_shrunken - 1) < abs(row.to_stock.ratio - 1)
