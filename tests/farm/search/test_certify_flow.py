"""A certificate run again over engines whose true speed and lossiness are known."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from engines.answers import GenerationRequest
from farm.campaign.jobs import MeasureJob
from farm.campaign.scheduler import Scheduler, UnitStore
from farm.promotion.certification import Outcome, Remeasured, outcome_of
from farm.search.assemble import unit_keys
from farm.search.certify_flow import CertifyPlan, remeasure
from farm.search.certify_prompts import CertifyPrompts, certify_prompts
from farm.workers.codec import decode_outcome, encode_outcome
from settings.errors import SpecfarmError
from tests.farm.campaign.simulation import Effect, FakeTrees, Farm, World

CERTIFICATE: dict[str, Any] = {
    "heldout": {
        "draws": [
            {"purpose": "confirm:x:0", "take": None, "prompts": [["a/1", [1, 2]], ["a/2", [3]]]},
            {"purpose": "confirm:x:1", "take": None, "prompts": [["b/1", [4, 4]]]},
            {"purpose": "exact:x", "take": 1, "prompts": [["a/1", [1, 2]]]},
        ]
    }
}


class Again(Farm):
    """The simulated farm, set to certify the engine with the feature `final`."""

    fresh = True

    def build(self) -> None:
        super().build()
        trees = self.context.trees
        assert isinstance(trees, FakeTrees)
        self.prompts = certify_prompts(self.context, CERTIFICATE, self.fresh)
        plan = CertifyPlan(trees.stock("final"), self.prompts, 30.0)
        units = UnitStore(self.ledger, unit_keys(self.context), encode_outcome, decode_outcome)
        self.scheduler = Scheduler(remeasure(self.context, plan), self.workers, units)

    def measured(self) -> Remeasured:
        found = self.scheduler.run()
        assert isinstance(found, Remeasured)
        return found


def farm(folder: Path, effects: Mapping[str, Effect], exact: bool = True) -> Again:
    return Again(folder, World(effects), {}, exact=exact)


@pytest.mark.parametrize(
    ("effect", "outcome", "reason"),
    [
        (Effect(1.3), Outcome.PASS, "above the A/A floor"),
        (Effect(1.0), Outcome.INCONCLUSIVE, "reaches across"),
        (Effect(1.3, heldout=0.8), Outcome.FAIL, "not_faster"),
        (Effect(1.3, lossy=True), Outcome.FAIL, "not_lossless"),
        (Effect(1.3, lossy_exact=True), Outcome.FAIL, "not_lossless"),
        (Effect(1.3, status="crashed"), Outcome.FAIL, "crashed"),
        (Effect(1.3, status="timeout"), Outcome.FAIL, "timeout"),
        (Effect(1.3, mute=True), Outcome.INCONCLUSIVE, "no ratio"),
    ],
)
def test_what_the_engine_is_decides(
    tmp_path: Path, effect: Effect, outcome: Outcome, reason: str
) -> None:
    found, why = outcome_of(farm(tmp_path, {"final": effect}).measured())
    assert found is outcome and reason in why


def test_the_ratios_are_the_true_ones_with_their_baselines(tmp_path: Path) -> None:
    again = farm(tmp_path, {"final": Effect(1.3)})
    found = again.measured()
    assert found.to_stock is not None and found.to_stock.ratio == pytest.approx(1.3)
    assert found.to_ar is not None and found.to_ar.ratio == pytest.approx(2.6)
    assert found.stock_to_ar is not None and found.stock_to_ar.ratio == pytest.approx(2.0)
    assert found.to_stock.baseline == again.context.stock_name
    assert found.to_ar.baseline == f"{again.context.stock_name}-ar"
    assert found.lossless is not None and found.lossless["mismatches"] == 0


@pytest.mark.parametrize("unit", ["aa:1", "certify:1", "verify:calibration", "verify:certify"])
def test_a_failure_of_stock_or_the_machine_says_nothing(tmp_path: Path, unit: str) -> None:
    again = farm(tmp_path, {"final": Effect(1.3)})
    status = "invalid_environment" if unit.startswith("verify") else "crashed"
    again.world.faults[unit] = (status, "stock")
    with pytest.raises(SpecfarmError):
        again.measured()
    again.build()
    assert outcome_of(again.measured())[0] is Outcome.PASS
    assert again.world.executed[unit] == 2


@pytest.mark.parametrize(
    ("placebo", "passes"),
    [([1.1] * 3 + [0.9] * 3, True), ([1.1] * 6, False)],
    ids=["only at first", "again"],
)
def test_a_machine_that_finds_stock_unlike_itself_says_nothing(
    tmp_path: Path, placebo: list[float], passes: bool
) -> None:
    again = farm(tmp_path, {"final": Effect(1.3)})
    again.world.placebo = placebo
    if passes:
        assert outcome_of(again.measured())[0] is Outcome.PASS
    else:
        with pytest.raises(SpecfarmError, match="excludes 1"):
            again.measured()
    assert [f"aa:{n}" in again.world.executed for n in range(7)] == [True] * 6 + [False]


def test_a_kill_after_any_step_repeats_nothing_finished(tmp_path: Path) -> None:
    whole = farm(tmp_path / "whole", {"final": Effect(1.3)})
    steps = 0
    while whole.scheduler.step():
        steps += 1
    expected = json.dumps(asdict(whole.scheduler.result))
    assert steps > 10
    for killed_after in range(steps + 1):
        again = farm(tmp_path / str(killed_after), {"final": Effect(1.3)})
        for _ in range(killed_after):
            again.scheduler.step()
        again.build()
        assert json.dumps(asdict(again.measured())) == expected
        assert set(again.world.executed.values()) == {1}
        again.ledger.close()


def jobs(again: Again) -> dict[str, MeasureJob]:
    found: dict[str, MeasureJob] = {}
    submit = again.workers.submit

    def remember(job: Any) -> None:
        found[job.unit] = job
        submit(job)

    again.workers.submit = remember  # type: ignore[method-assign]
    again.measured()
    return {unit: job for unit, job in found.items() if isinstance(job, MeasureJob)}


def test_final_is_timed_against_stock_and_first_against_ar_too(tmp_path: Path) -> None:
    found = jobs(farm(tmp_path, {"final": Effect(1.3)}))
    assert list(found) == ["aa:0", "aa:1", "aa:2", "certify:0", "certify:1"]
    arms = {unit: sorted(spec.label for spec in job.arms) for unit, job in found.items()}
    assert arms["aa:0"] == ["stock", "stock_b"]
    assert arms["certify:0"] == ["ar", "candidate", "stock"]
    assert arms["certify:1"] == ["candidate", "stock"]
    first = [job.arms[0].label for unit, job in found.items() if unit.startswith("aa")]
    assert first == ["stock", "stock_b", "stock"], "each is launched second in turn"
    twin = [bool(job.exact_requests) for job in found.values()]
    assert twin == [False, False, False, True, False]
    assert {p.prompt_ids for p in found["certify:1"].verifier_prompts} == {(1, 2), (3,), (4, 4)}


def prompts(folder: Path, fresh: bool) -> CertifyPrompts:
    again = farm(folder, {})
    return certify_prompts(again.context, CERTIFICATE, fresh)


def ids(requests: tuple[GenerationRequest, ...]) -> list[str]:
    return [request.id for request in requests]


def test_fresh_prompts_are_of_this_certification_alone(tmp_path: Path) -> None:
    found = prompts(tmp_path, True)
    assert [ids(r) for r in found.timed] == [[f"heldout-certify:{n}"] for n in range(2)]
    assert [ids(r) for r in found.placebo] == [[f"heldout-certify-aa:{n}"] for n in range(3)]
    assert ids(found.exact) == ["heldout-certify-exact"]
    assert [prompt.prompt_ids for prompt in found.own] == [(1, 2), (3,), (4, 4)]


def test_the_same_prompts_are_each_timed_once(tmp_path: Path) -> None:
    found = prompts(tmp_path, False)
    assert [ids(r) for r in found.timed] == [["a/1", "b/1"], ["a/2"]]
    assert [prompt.prompt_ids for prompt in found.own] == [(1, 2), (3,), (4, 4)]


def test_a_fresh_prompt_that_the_certificate_holds_is_not_timed(tmp_path: Path) -> None:
    again = farm(tmp_path, {})
    known = again.context.prompts.heldout("certify:1")[0].prompt_ids
    draw = {"purpose": "confirm:x:0", "take": None, "prompts": [["a/1", list(known)]]}
    # The simulated setting has one prompt a draw: without it there is nothing to time.
    with pytest.raises(SpecfarmError, match=r"one of 2 launches gets none.*--same-prompts"):
        certify_prompts(again.context, {"heldout": {"draws": [draw]}}, True)
