"""The campaign over engines whose true speed and lossiness are known."""

from __future__ import annotations

from pathlib import Path

import pytest

from farm.campaign.jobs import Job, MeasureJob, VerifyJob
from settings.errors import SpecfarmError
from tests.farm.campaign.simulation import Effect, Farm, World, proposal


def search(
    folder: Path, effects: dict[str, Effect], rounds: dict[int, list[str]] | None = None
) -> Farm:
    named = rounds or {1: list(effects)}
    return Farm(
        folder, World(effects), {r: [proposal(n) for n in names] for r, names in named.items()}
    )


def test_an_honest_speed_up_is_accepted_merged_and_confirmed(tmp_path: Path) -> None:
    farm = search(tmp_path, {"a": Effect(1.15), "b": Effect(1.10), "noop": Effect()})
    end = farm.run()
    assert farm.verdicts(end) == {
        "a": "accepted",
        "b": "accepted",
        "noop": "inconclusive",
        "a+b": "accepted",
    }
    assert end.winner is not None and end.winner.kind == "merge"
    assert end.report.promoted == end.winner.candidate_id
    to_stock, to_ar = end.report.final_to_stock, end.report.final_to_ar
    assert to_stock is not None and to_stock.ratio == pytest.approx(1.15 * 1.10)
    assert to_ar is not None and to_ar.ratio == pytest.approx(2 * 1.15 * 1.10)
    assert to_stock.baseline == farm.context.stock_name
    assert to_ar.baseline == f"{farm.context.stock_name}-ar"
    assert end.winner.heldout_to_stock == to_stock
    assert end.confirmation is not None
    drawn = {request.id for request in end.confirmation.requests}
    winner = end.winner.candidate_id
    launches = {f"heldout-confirm:{winner}:{launch}" for launch in range(3)}
    assert drawn == launches, "prompts of its own for each"
    assert farm.observer.reports[-1] == end.report


def test_confirmation_takes_fresh_prompts_and_launches(tmp_path: Path) -> None:
    farm = search(tmp_path, {"a": Effect(1.15)})
    farm.run()
    confirming = [u for u in farm.workers.submitted if u.startswith("confirm:")]
    assert confirming == [f"confirm:r1-00-a:{n}" for n in range(3)]
    assert farm.workers.submitted.count("verify:confirm:r1-00-a") == 1


@pytest.mark.parametrize(
    ("effect", "exact", "verdict"),
    [
        (Effect(1.5, lossy=True), False, "not_lossless"),
        (Effect(1.5, lossy_exact=True), True, "not_lossless"),
        (Effect(1.5), True, "accepted"),
        (Effect(1.5, status="crashed"), False, "crashed"),
        (Effect(1.5, status="timeout"), False, "timeout"),
        (Effect(1.5, status="malformed"), False, "crashed"),
        (Effect(1.5, status="out_of_memory"), False, "infeasible"),
        (Effect(0.8), False, "not_faster"),
        (Effect(1.0), False, "inconclusive"),
        (Effect(0.5, loser=True), True, "not_faster"),
    ],
)
def test_one_bad_candidate_gets_its_verdict_and_the_rest_goes_on(
    tmp_path: Path, effect: Effect, exact: bool, verdict: str
) -> None:
    world = World({"x": effect, "good": Effect(1.2)})
    farm = Farm(tmp_path, world, {1: [proposal("x"), proposal("good")]}, exact=exact)
    end = farm.run()
    assert farm.verdicts(end)["x"] == verdict
    assert farm.verdicts(end)["good"] == "accepted"
    assert end.winner is not None and "good" in end.winner.mechanism
    assert all(c.decision.reason for c in end.report.candidates)
    assert end.confirmation is not None
    for_twin = f"heldout-exact:{end.winner.candidate_id}"
    assert (for_twin in {r.id for r in end.confirmation.requests}) is exact


def test_a_clear_loser_is_not_forced(tmp_path: Path) -> None:
    farm = search(tmp_path, {"x": Effect(0.5, loser=True)})
    farm.run()
    assert not [u for u in farm.workers.submitted if u.startswith("verify:r1")]


@pytest.mark.parametrize("status", ["crashed", "timeout", "malformed", "out_of_memory"])
def test_a_failing_stock_arm_is_no_verdict_on_the_candidate_and_is_tried_again_on_resume(
    tmp_path: Path, status: str
) -> None:
    farm = search(tmp_path, {"a": Effect(1.2)})
    farm.world.faults["measure:r1-00-a"] = (status, "stock")
    assert farm.verdicts(farm.run()) == {"a": "invalid_environment"}
    farm.build()
    assert farm.verdicts(farm.run()) == {"a": "accepted"}
    assert farm.world.executed["measure:r1-00-a"] == 2


def test_a_broken_verifier_is_invalid_environment_and_only_forcing_is_repeated(
    tmp_path: Path,
) -> None:
    farm = search(tmp_path, {"a": Effect(1.2)})
    farm.world.faults["verify:r1-00-a"] = ("invalid_environment", None)
    end = farm.run()
    assert farm.verdicts(end) == {"a": "invalid_environment"}
    failed = [u for u in farm.ledger.units("sim") if u.status == "failed"]
    assert [u.error for u in failed] == ["stock engine is gone"]
    farm.build()
    assert farm.verdicts(farm.run()) == {"a": "accepted"}
    assert farm.world.executed["measure:r1-00-a"] == 1
    assert farm.world.executed["verify:r1-00-a"] == 2


@pytest.mark.parametrize("unit", ["aa:1", "beside:ar"])
@pytest.mark.parametrize("status", ["crashed", "invalid_environment"])
def test_a_failed_baseline_stops_the_campaign_and_is_measured_again_on_resume(
    tmp_path: Path, unit: str, status: str
) -> None:
    farm = search(tmp_path, {"a": Effect(1.2)})
    farm.world.faults[unit] = (status, "stock_b" if unit == "aa:1" else "stock")
    with pytest.raises(SpecfarmError, match="baseline") as caught:
        farm.run()
    assert "resume" in caught.value.remedy
    farm.build()
    assert farm.run().report.promoted == "r1-00-a"
    assert farm.world.executed["aa:0"] == 1


def test_conflict_and_refusal_launch_nothing(tmp_path: Path) -> None:
    farm = search(tmp_path, {"conflict": Effect(), "evil": Effect(), "a": Effect(1.2)})
    end = farm.run()
    assert farm.verdicts(end) == {"conflict": "conflict", "evil": "refused", "a": "accepted"}
    assert not [u for u in farm.workers.submitted if "conflict" in u or "evil" in u]


def test_a_candidate_without_timed_tokens_does_not_end_the_campaign(tmp_path: Path) -> None:
    farm = search(
        tmp_path,
        {"dumb": Effect(mute=True, lossy=True), "mute": Effect(mute=True), "a": Effect(1.2)},
    )
    verdicts = farm.verdicts(farm.run())
    assert verdicts["dumb"] == "not_lossless"
    assert verdicts["mute"] not in ("accepted", "not_faster")
    assert verdicts["a"] == "accepted"


def test_winners_curse_is_not_promoted(tmp_path: Path) -> None:
    farm = search(tmp_path, {"lucky": Effect(1.3, heldout=1.0)})
    end = farm.run()
    assert farm.verdicts(end) == {"lucky": "inconclusive"}
    assert end.report.candidates[0].decision.reason.startswith("on held-out prompts")
    assert end.report.promoted is None and end.report.final_to_stock is None


def test_lossy_only_on_held_out_is_not_promoted(tmp_path: Path) -> None:
    farm = search(tmp_path, {"a": Effect(1.3)})
    farm.world.faults["verify:confirm:r1-00-a"] = ("not_lossless", None)
    end = farm.run()
    assert farm.verdicts(end) == {"a": "not_lossless"}
    assert end.report.promoted is None


def test_a_merge_that_does_not_pay_is_dropped(tmp_path: Path) -> None:
    world = World(
        {"a": Effect(1.15), "b": Effect(1.1)}, pairs={frozenset(("a", "b")): 1 / (1.1 * 1.05)}
    )
    farm = Farm(tmp_path, world, {1: [proposal("a"), proposal("b")]})
    end = farm.run()
    assert farm.verdicts(end)["a+b"] == "accepted"
    assert end.report.promoted == "r1-00-a"


def test_a_change_that_does_not_merge_is_left_out(tmp_path: Path) -> None:
    farm = search(tmp_path, {"a": Effect(1.2), "needs_clean": Effect(1.15), "c": Effect(1.1)})
    end = farm.run()
    assert end.winner is not None and end.winner.mechanism == "a+c"
    assert farm.verdicts(end)["a+needs_clean"] == "conflict"


def test_a_merge_that_fails_on_held_out_falls_back_to_its_best_member(tmp_path: Path) -> None:
    farm = search(tmp_path, {"a": Effect(1.15), "b": Effect(1.1, heldout=0.7)})
    end = farm.run()
    assert farm.verdicts(end)["a+b"] == "not_faster"
    assert end.report.promoted == "r1-00-a"
    assert end.report.final_to_stock is not None
    assert end.report.final_to_stock.ratio == pytest.approx(1.15)


def test_round_two_works_on_the_incumbent(tmp_path: Path) -> None:
    farm = search(tmp_path, {"a": Effect(1.2), "b": Effect(1.1)}, {1: ["a"], 2: ["a", "b"]})
    end = farm.run()
    second = next(c for c in end.report.candidates if c.mechanism == "b")
    assert (second.round, second.patch) == (2, "b")
    assert second.to_stock is not None and second.to_stock.ratio == pytest.approx(1.32)
    assert second.to_stock.baseline == farm.context.stock_name
    assert second.to_ar is not None and second.to_ar.ratio == pytest.approx(2.64)
    assert end.report.promoted == second.candidate_id
    assert end.report.final_to_stock is not None
    assert end.report.final_to_stock.ratio == pytest.approx(1.32)
    assert [c.mechanism for c in end.report.candidates] == ["a", "b"]


def test_a_second_round_that_loses_on_held_out_keeps_the_first_winner(tmp_path: Path) -> None:
    effects = {"a": Effect(1.3), "lucky": Effect(1.2, heldout=0.9)}
    farm = search(tmp_path, effects, {1: ["a"], 2: ["lucky"]})
    end = farm.run()
    assert end.report.promoted == "r1-00-a"
    assert end.report.final_to_stock is not None
    assert end.report.final_to_stock.ratio == pytest.approx(1.3)
    assert farm.verdicts(end)["lucky"] != "accepted"


def test_a_failed_merge_of_round_two_falls_back_within_round_two(tmp_path: Path) -> None:
    effects = {
        "a": Effect(1.3),
        "low": Effect(1.05),
        "b": Effect(1.1),
        "lucky": Effect(1.08, heldout=0.6),
    }
    farm = search(tmp_path, effects, {1: ["a", "low"], 2: ["b", "lucky"]})
    end = farm.run()
    assert end.winner is not None and end.winner.mechanism == "b"
    assert end.report.final_to_stock is not None
    assert end.report.final_to_stock.ratio == pytest.approx(1.3 * 1.05 * 1.1)


def test_nothing_accepted_is_a_report_without_a_winner(tmp_path: Path) -> None:
    end = search(tmp_path, {"noop": Effect(), "slow": Effect(0.9)}).run()
    assert end.winner is None and end.confirmation is None
    assert end.report.promoted is None and end.report.final_to_ar is None
    assert end.report.aa_floor == 1.015
    assert end.report.stock_to_ar is not None
    assert end.report.stock_to_ar.ratio == pytest.approx(2.0)


def test_nothing_to_propose_ends_with_baselines(tmp_path: Path) -> None:
    farm = Farm(tmp_path, World({}), {1: []})
    end = farm.run()
    assert end.report.candidates == () and end.report.aa is not None
    assert any("nothing left" in m or "anything left" in m for m in farm.observer.messages)


def test_canaries_take_the_same_way_and_never_win(tmp_path: Path) -> None:
    world = World({"a": Effect(1.1), "lossy": Effect(1.4, lossy=True), "placebo": Effect(1.0)})
    canaries = [proposal("placebo", "canary_noop"), proposal("lossy", "canary_lossy")]
    farm = Farm(tmp_path, world, {1: [proposal("a")]}, canaries=canaries)
    end = farm.run()
    assert farm.verdicts(end)["lossy"] == "not_lossless"
    assert farm.verdicts(end)["placebo"] != "accepted"
    assert end.winner is not None and end.winner.mechanism == "a"


def test_an_accepted_canary_is_said_and_nothing_is_promoted(tmp_path: Path) -> None:
    world = World({"a": Effect(1.1), "placebo": Effect(1.3)})
    canaries = [proposal("placebo", "canary_noop")]
    end = Farm(tmp_path, world, {1: [proposal("a")]}, canaries=canaries).run()
    assert end.winner is None and end.report.promoted is None
    assert any(note.startswith("placebo was planted and accepted") for note in end.report.notes)


def test_a_spent_budget_says_what_was_not_run_and_still_confirms(tmp_path: Path) -> None:
    names = ["a", "b", "c", "d"]
    world = World({name: Effect(1.2) for name in names[:1]})
    farm = Farm(tmp_path, world, {1: [proposal(n) for n in names], 2: []}, budget_s=82)
    end = farm.run()
    skipped = [note for note in end.report.notes if "was not run" in note]
    assert [c.mechanism for c in end.report.candidates] == ["a", *names[1 : 4 - len(skipped)]]
    assert [note.split()[0] for note in skipped] == names[4 - len(skipped) :] and skipped
    assert any(note.startswith("round 2 not started") for note in end.report.notes)
    assert end.report.promoted == "r1-00-a"


def test_finished_candidates_count_even_when_resumed_after_the_budget(tmp_path: Path) -> None:
    farm = search(tmp_path, {"a": Effect(1.2), "b": Effect(1.1)})
    while not farm.world.executed["verify:r1-00-a"]:
        farm.scheduler.step()
    farm.world.now = 1e9
    farm.build()
    end = farm.run()
    assert farm.verdicts(end) == {"a": "accepted"}
    assert end.report.notes == ("b was not run: the budget is spent",)
    assert end.report.promoted == "r1-00-a"


def test_several_devices_in_any_order_give_the_same_verdicts(tmp_path: Path) -> None:
    effects = {
        "a": Effect(1.15),
        "b": Effect(1.10),
        "bad": Effect(2.0, lossy=True),
        "dead": Effect(status="crashed"),
    }
    one = search(tmp_path / "one", effects)
    many = Farm(
        tmp_path / "many",
        World(effects),
        {1: [proposal(n) for n in effects]},
        capacity=3,
        last_first=True,
    )
    assert one.verdicts(one.run()) == many.verdicts(many.run())
    assert many.workers.most == 3


def test_all_accepted_are_merged_in_one_measurement_where_that_pays(tmp_path: Path) -> None:
    effects = {"a": Effect(1.2), "b": Effect(1.15), "c": Effect(1.1)}
    farm = search(tmp_path, effects)
    end = farm.run()
    merges = [u for u in farm.workers.submitted if "merge" in u and u.startswith("measure")]
    assert len({u.split(":")[1] for u in merges}) == 1
    assert end.winner is not None and end.winner.mechanism == "a+b+c"
    assert end.report.final_to_stock is not None
    assert end.report.final_to_stock.ratio == pytest.approx(1.2 * 1.15 * 1.1)


def test_where_all_together_does_not_pay_they_join_one_by_one(tmp_path: Path) -> None:
    effects = {"a": Effect(1.2), "b": Effect(1.15), "c": Effect(1.1)}
    world = World(effects, pairs={frozenset(("a", "c")): 0.7})
    farm = Farm(tmp_path, world, {1: [proposal(n) for n in effects]})
    end = farm.run()
    assert end.winner is not None and end.winner.mechanism == "a+b"
    assert farm.verdicts(end)["a+b"] == "accepted"


def test_merging_leaves_confirmation_its_share_of_the_budget(tmp_path: Path) -> None:
    names = ["a", "b", "c", "d"]
    effects = {name: Effect(1.2 - 0.02 * n) for n, name in enumerate(names)}
    # All four together do not pay, so they join one by one as long as there is time.
    world = World(effects, pairs={frozenset(("a", "d")): 0.5})
    farm = Farm(tmp_path, world, {1: [proposal(n) for n in names]}, budget_s=110)
    end = farm.run()
    merges = [u for u in farm.workers.submitted if "merge" in u and u.startswith("measure")]
    assert len(merges) < 3
    assert any("was not merged: the budget is spent" in text for text in farm.observer.messages)
    assert end.report.promoted is not None


def test_the_verifier_only_prompts_are_asked_in_the_first_confirmation_launch_alone(
    tmp_path: Path,
) -> None:
    farm = search(tmp_path, {"a": Effect(1.2)})
    jobs: list[Job] = []
    submit = farm.workers.submit
    farm.workers.submit = lambda job: (jobs.append(job), submit(job))[1]  # type: ignore[method-assign]
    end = farm.run()
    asked = {
        job.unit: [prompt.id for prompt in job.verifier_prompts]
        for job in jobs
        if isinstance(job, MeasureJob) and job.verifier_prompts
    }
    assert asked == {"confirm:r1-00-a:0": ["verifier:r1-00-a"]}
    forced = [job for job in jobs if isinstance(job, VerifyJob) and job.verifier_answers]
    assert [job.unit for job in forced] == ["verify:confirm:r1-00-a"]
    assert forced[0].verifier_requests == ({"id": "verifier:r1-00-a"},)
    assert farm.verdicts(end) == {"a": "accepted"}


def test_lossy_on_verifier_only_prompts_is_not_promoted(tmp_path: Path) -> None:
    farm = search(tmp_path, {"a": Effect(1.3, lossy_hidden=True)})
    end = farm.run()
    assert farm.verdicts(end) == {"a": "not_lossless"}
    assert end.report.promoted is None


def test_the_calibration_sees_another_process_of_stock(tmp_path: Path) -> None:
    farm = search(tmp_path, {})
    jobs: list[Job] = []
    submit = farm.workers.submit
    farm.workers.submit = lambda job: (jobs.append(job), submit(job))[1]  # type: ignore[method-assign]
    farm.run()
    (job,) = [job for job in jobs if isinstance(job, VerifyJob) and job.calibrate]
    assert {a["arm"] for a in job.restarted_answers} == {"stock_b"}
    assert [a["unit"] for a in job.restarted_answers] == ["aa:0", "aa:1", "aa:2"]
    assert {a["arm"] for a in job.stock_answers} == {"stock"}
