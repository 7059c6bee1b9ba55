"""What the guards say, through a whole campaign."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from farm.campaign.flow import campaign
from farm.campaign.guard_case import Guarded
from farm.campaign.jobs import ArmSpec, MeasureOutcome, VerifyOutcome
from farm.campaign.scheduler import Scheduler
from farm.results import CandidateResult
from farm.verdicts import Decision, Verdict
from tests.farm.campaign.simulation import Effect, Farm, NoGuards, World, proposal

CAUGHT = Guarded(
    Decision(Verdict.CHEATING, "replayed", {"caught_by": "physics"}), {"physics": {"step_s": 1.0}}
)


class GuardsOf(NoGuards):
    """Refuse the candidates whose subject runs as `arm`; remember what they were shown."""

    def __init__(self, arm: str) -> None:
        super().__init__()
        self.arm = arm
        self.asked: list[tuple[str, int, bool]] = []
        self.confirmed: list[int] = []

    def check(  # type: ignore[override]
        self,
        arms: Sequence[ArmSpec],
        outcomes: Sequence[MeasureOutcome],
        verified: VerifyOutcome | None,
    ) -> Guarded:
        (subject,) = (spec for spec in arms if spec.label == "candidate")
        self.asked.append((subject.arm, len(outcomes), verified is not None))
        return CAUGHT if subject.arm == self.arm else Guarded(None, {"seen": True})

    def fair(self, recordings: Sequence[Any]) -> list[Any]:
        self.confirmed.append(len(recordings))
        return list(recordings)


def run(folder: Path, arm: str, **effects: Effect) -> tuple[Farm, GuardsOf, Any]:
    guards = GuardsOf(arm)
    farm = Farm(folder, World(effects), {1: [proposal(name) for name in effects]})
    farm.context = replace(farm.context, guards=guards)
    farm.scheduler = Scheduler(campaign(farm.context), farm.workers, farm.scheduler._units)
    return farm, guards, farm.run()


def row(end: Any, name: str) -> CandidateResult:
    (found,) = (c for c in end.report.candidates if c.mechanism == name)
    assert isinstance(found, CandidateResult)
    return found


def test_a_guard_refuses_what_token_forcing_and_speed_would_accept(tmp_path: Path) -> None:
    _, guards, end = run(tmp_path, "candidate", a=Effect(1.2))
    found = row(end, "a")
    assert found.decision.verdict is Verdict.CHEATING
    assert found.decision.evidence["caught_by"] == "physics"
    assert end.winner is None and end.report.promoted is None
    assert guards.asked == [("candidate", 1, True)]


def test_a_winner_is_guarded_again_over_all_launches_of_its_confirmation(tmp_path: Path) -> None:
    farm, guards, end = run(tmp_path, "final", a=Effect(1.2))
    found = row(end, "a")
    assert found.decision.verdict is Verdict.CHEATING
    assert found.decision.reason == "on held-out prompts: replayed"
    assert found.decision.evidence["caught_by"] == "physics"
    launches = farm.context.setting.measurement.launches_confirm
    assert guards.asked == [("candidate", 1, True), ("final", launches, True)]
    # What its interval rests on went through the rule for repeats.
    assert guards.confirmed == [launches]
    assert end.winner is None


def test_guards_are_asked_of_failures_too_and_their_numbers_are_kept(tmp_path: Path) -> None:
    _, guards, end = run(tmp_path, "nobody", bad=Effect(status="crashed"), good=Effect(1.2))
    assert ("candidate", 1, False) in guards.asked
    assert row(end, "bad").decision.evidence["guards"] == {"seen": True}
    accepted = row(end, "good").decision
    assert accepted.verdict is Verdict.ACCEPTED
    assert accepted.evidence["guards"] == {"seen": True}
    engaged = accepted.evidence["engaged"]
    assert isinstance(engaged, dict) and engaged["engaged"] == "yes"


def test_refusals_before_a_launch_name_their_check(tmp_path: Path) -> None:
    _, guards, end = run(tmp_path, "nobody", evil=Effect(), conflict=Effect())
    caught = {c.mechanism: c.decision.evidence["caught_by"] for c in end.report.candidates}
    assert caught == {"evil": "patch_policy", "conflict": "merge"}
    assert guards.asked == []
