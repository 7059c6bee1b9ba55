"""The modes on engines that really stand still while paused."""

from __future__ import annotations

import itertools

import pytest

from engines.errors import EngineCrashed
from farm.bench.errors import MeasurementError
from farm.bench.launches import measure_launches
from farm.bench.modes import measure
from farm.bench.plan import MeasurementPlan
from farm.bench.recording import PREFILL_TURN
from tests.farm.bench.fakes import FakeEngine, Ledger, request

REQUESTS = [request("p0"), request("p1")]
SLICES = MeasurementPlan(mode="slices", prompts=2, slice_s=(0.004, 0.008))


def _engines(ledger: Ledger, *labels: str, **kwargs: int) -> dict[str, FakeEngine]:
    return {label: FakeEngine(label, ledger, **kwargs) for label in labels}


@pytest.mark.parametrize("labels", [("candidate", "stock"), ("candidate", "stock", "ar")])
def test_slices_run_one_arm_at_a_time_and_keep_every_id(labels: tuple[str, ...]) -> None:
    ledger = Ledger()
    engines = _engines(ledger, *labels)
    recording = measure(engines, REQUESTS, SLICES)
    assert all(engine.is_running.is_set() for engine in engines.values())
    for label in labels:
        answers = recording.answers(label)
        assert [a.request for a in answers] == REQUESTS
        assert all(a.output_ids == tuple(range(100, 112)) for a in answers)
        assert recording.trees[label] == f"{label}-hash"
    for run in recording.runs:
        turns = [s.turn for s in run.slices]
        assert turns == [PREFILL_TURN, *range(len(turns) - 1)]
        assert all(b.start_s >= a.end_s for a, b in itertools.pairwise(run.slices))


def test_only_the_running_arm_is_ever_resumed() -> None:
    ledger = Ledger()
    measure(_engines(ledger, "candidate", "stock"), REQUESTS, SLICES)
    running: set[str] = {"candidate", "stock"}
    began = False
    for label, what in ledger.events[:-2]:  # the last two events set both free again
        if what == "pause":
            running.discard(label)
        elif what == "resume":
            running.add(label)
        began = began or not running
        assert not began or len(running) <= 1, "two arms ran at once"
    assert began


def test_pauses_never_enter_running_time() -> None:
    recording = measure(_engines(Ledger(), "candidate", "stock"), REQUESTS, SLICES)
    for run in recording.runs:
        ran = sum(s.end_s - max(s.start_s, 0.0) for s in run.slices)
        assert run.running_s[-1] <= ran + 1e-9
        assert run.running_s[-1] < run.wall_s[-1]
        assert all(b >= a for a, b in itertools.pairwise(run.running_s))


def test_each_arm_leads_equally_often_and_caches_are_flushed_before_every_prompt() -> None:
    ledger = Ledger()
    plan = MeasurementPlan(mode="slices", prompts=2, repeats=2, slice_s=(0.004, 0.008))
    measure(_engines(ledger, "candidate", "stock"), REQUESTS, plan)
    sends = [(label, what) for label, what in ledger.events if what.startswith("send")]
    leaders = [label for label, _ in sends[::2]]
    assert sorted(leaders) == ["candidate", "candidate", "stock", "stock"]
    assert [what for _, what in sends] == ["send p0"] * 2 + ["send p1"] * 2 + ["send p0"] * 2 + [
        "send p1"
    ] * 2
    before_send = [
        ledger.events[i - 1] for i, (_, what) in enumerate(ledger.events) if what.startswith("send")
    ]
    assert [what for _, what in before_send] == ["flush"] * 8


@pytest.mark.parametrize("mode", ["slices", "abba"])
@pytest.mark.parametrize("fail_at", [1, 6])
def test_an_engine_error_comes_through_and_leaves_all_running(mode: str, fail_at: int) -> None:
    ledger = Ledger()
    engines = {
        "stock": FakeEngine("stock", ledger),
        "candidate": FakeEngine("candidate", ledger, fail_at=fail_at),
    }
    plan = MeasurementPlan(mode=mode, prompts=2, slice_s=(0.004, 0.008))  # type: ignore[arg-type]
    with pytest.raises(EngineCrashed, match="candidate fell over"):
        measure(engines, REQUESTS, plan)
    assert all(engine.is_running.is_set() for engine in engines.values())


def test_abba_alternates_whole_answers() -> None:
    ledger = Ledger()
    plan = MeasurementPlan(mode="abba", prompts=2)
    recording = measure(_engines(ledger, "candidate", "stock"), REQUESTS, plan)
    sends = [label for label, what in ledger.events if what.startswith("send")]
    assert sends == ["candidate", "stock", "stock", "candidate"]
    assert all(run.running_s == run.wall_s for run in recording.runs)


def test_launches_start_and_stop_one_engine_at_a_time() -> None:
    ledger = Ledger()
    made: list[FakeEngine] = []

    def factory(label: str) -> FakeEngine:
        assert all(engine.stopped for engine in made)
        made.append(FakeEngine(label, ledger))
        return made[-1]

    recording = measure_launches(
        {"candidate": lambda: factory("candidate"), "stock": lambda: factory("stock")},
        REQUESTS,
        MeasurementPlan(mode="launches", prompts=2),
        launches=2,
        warm_rounds=3,
    )
    assert [engine.arm for engine in made] == ["candidate", "stock", "stock", "candidate"]
    assert all(engine.stopped for engine in made)
    assert {(r.arm, r.launch) for r in recording.runs} == {
        (arm, launch) for arm in ("candidate", "stock") for launch in (0, 1)
    }


def test_a_stop_rule_is_asked_after_every_prompt_from_the_fewest_on() -> None:
    asked: list[int] = []

    def rule(recording):  # type: ignore[no-untyped-def]
        asked.append(len(recording.runs))
        return "enough" if len(recording.runs) >= 6 else None

    plan = MeasurementPlan(mode="abba", prompts=5, fewest_prompts=2, stop=rule)
    requests = [request(f"p{i}", 3) for i in range(5)]
    recording = measure(_engines(Ledger(), "candidate", "stock"), requests, plan)
    assert asked == [4, 6]
    assert len(recording.runs) == 6
    assert recording.notes == ("stopped early: enough",)


def test_a_spent_budget_still_brings_the_fewest_prompts() -> None:
    plan = MeasurementPlan(mode="abba", prompts=5, repeats=3, fewest_prompts=2, budget_s=0.0)
    requests = [request(f"p{i}", 3) for i in range(5)]
    recording = measure(_engines(Ledger(), "candidate", "stock"), requests, plan)
    assert {run.request for run in recording.runs} == {0, 1}
    assert "time spent" in recording.notes[0]


def test_unknown_modes_and_empty_measurements_are_refused() -> None:
    engines = _engines(Ledger(), "stock")
    with pytest.raises(MeasurementError, match="abba, blocks, slices"):
        measure(engines, REQUESTS, MeasurementPlan(mode="launches"))
    with pytest.raises(MeasurementError, match="nothing to measure"):
        measure(engines, [], SLICES)
    with pytest.raises(MeasurementError, match="must pause idle arms"):
        MeasurementPlan(mode="slices", pause_idle=False)
