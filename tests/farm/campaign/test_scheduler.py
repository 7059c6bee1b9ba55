"""The scheduler step by step, with workers that only do what a step makes them do."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from farm.campaign.jobs import (
    ArmSpec,
    Job,
    MeasureJob,
    MeasureOutcome,
    Outcome,
    VerifyJob,
    VerifyOutcome,
)
from farm.campaign.scheduler import Phase, Scheduler, Task, UnitStore
from farm.campaign.tasks import measure, verify
from farm.ledger import Ledger, UnitKey
from farm.workers.codec import decode_outcome, encode_outcome
from farm.workers.local import LocalWorkers


class Workers:
    """`answers[unit]` is what a unit ends with (default: ok); jobs end first in, first out."""

    def __init__(self, capacity: int = 1, answers: dict[str, Outcome] | None = None) -> None:
        self.capacity = capacity
        self.forcing_waits = False
        self.answers = answers or {}
        self.flight: list[Job] = []
        self.submitted: list[str] = []

    def submit(self, job: Job) -> None:
        self.flight.append(job)
        self.submitted.append(job.unit)

    def wait(self) -> tuple[Job, Outcome]:
        job = self.flight.pop(0)
        return job, self.answers.get(job.unit, MeasureOutcome("ok", recording={"unit": job.unit}))


def job(unit: str, arm: str = "candidate") -> MeasureJob:
    spec = ArmSpec("candidate", arm, "native", "c", "t")
    return MeasureJob(unit, "s", (spec,), (), "candidate", "stock", 1.0, 0)


def two_units(name: str) -> Task:
    first = yield from measure(job(f"{name}:1"))
    second = yield from measure(job(f"{name}:2"))
    return (first.recording, second.recording)


def one_unit(name: str) -> Task:
    outcome = yield from measure(job(name))
    return outcome.status


def phases(*given: Phase) -> Generator[Phase, list[Any], list[list[Any]]]:
    results = []
    for phase in given:
        results.append((yield phase))
    return results


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    found = Ledger(tmp_path / "ledger.sqlite")
    found.create_campaign("c", "s", {})
    return found


def store(ledger: Ledger) -> UnitStore:
    def key_of(job: Job) -> UnitKey:
        return UnitKey("c", "s", "", "", "", "", "", "measure", "", subject=job.unit)

    return UnitStore(ledger, key_of, encode_outcome, decode_outcome)


def statuses(ledger: Ledger) -> dict[str, str]:
    return {unit.subject: unit.status for unit in ledger.units("c")}


def test_one_event_a_step(ledger: Ledger) -> None:
    workers = Workers()
    scheduler = Scheduler(phases(Phase("p", [two_units("a")])), workers, store(ledger))
    assert scheduler.step() and workers.submitted == []
    assert scheduler.step() and workers.submitted == ["a:1"]
    assert statuses(ledger) == {"a:1": "running"}
    assert scheduler.step() and workers.submitted == ["a:1", "a:2"]
    assert statuses(ledger) == {"a:1": "done", "a:2": "running"}
    assert scheduler.step() and statuses(ledger)["a:2"] == "done"
    assert not scheduler.step() and scheduler.finished
    assert scheduler.result == [[({"unit": "a:1"}, {"unit": "a:2"})]]
    assert not scheduler.step()


@pytest.mark.parametrize("capacity", [1, 2, 3, 8])
def test_capacity_is_used_and_never_exceeded(ledger: Ledger, capacity: int) -> None:
    workers = Workers(capacity)
    tasks = [two_units(f"t{n}") for n in range(5)]
    scheduler = Scheduler(phases(Phase("p", tasks)), workers, store(ledger))
    most = 0
    while scheduler.step():
        most = max(most, len(workers.flight))
        assert len(workers.flight) <= capacity
    assert most == min(capacity, 5)
    assert [result[0]["unit"] for result in scheduler.result[0]] == [f"t{n}:1" for n in range(5)]


def test_results_keep_the_order_of_tasks_whatever_ends_first(ledger: Ledger) -> None:
    class LastFirst(Workers):
        def wait(self) -> tuple[Job, Outcome]:
            self.flight.reverse()
            return super().wait()

    tasks = [two_units(name) for name in "abc"]
    result = Scheduler(phases(Phase("p", tasks)), LastFirst(3), store(ledger)).run()
    assert [pair[1]["unit"] for pair in result[0]] == ["a:2", "b:2", "c:2"]


def test_a_phase_waits_for_all_tasks_of_the_one_before(ledger: Ledger) -> None:
    workers = Workers(4)
    seen: list[list[str]] = []

    def flow() -> Generator[Phase, list[Any], None]:
        yield Phase("one", [two_units("a"), one_unit("b")])
        seen.append(list(workers.submitted))
        yield Phase("two", [one_unit("c")])

    Scheduler(flow(), workers, store(ledger)).run()
    assert sorted(seen[0]) == ["a:1", "a:2", "b"]
    assert workers.submitted[-1] == "c"


def test_empty_phases_are_passed(ledger: Ledger) -> None:
    assert Scheduler(phases(Phase("a", []), Phase("b", [])), Workers(), store(ledger)).run() == [
        [],
        [],
    ]


def test_finished_units_are_answered_from_the_ledger(ledger: Ledger) -> None:
    first = Scheduler(phases(Phase("p", [two_units("a")])), Workers(), store(ledger))
    for _ in range(3):
        first.step()
    workers = Workers()
    result = Scheduler(phases(Phase("p", [two_units("a")])), workers, store(ledger)).run()
    assert workers.submitted == ["a:2"]
    assert result == [[({"unit": "a:1"}, {"unit": "a:2"})]]
    again = Workers()
    assert Scheduler(phases(Phase("p", [two_units("a")])), again, store(ledger)).run() == result
    assert again.submitted == []


@pytest.mark.parametrize(
    ("arm", "outcome", "kept"),
    [
        ("candidate", MeasureOutcome("crashed", "candidate", "boom"), True),
        ("final", MeasureOutcome("timeout", "candidate", "late"), True),
        ("candidate", MeasureOutcome("out_of_memory", "candidate", "oom"), True),
        ("candidate", MeasureOutcome("crashed", "stock", "boom"), False),
        ("candidate", MeasureOutcome("crashed", None, "boom"), False),
        ("candidate", MeasureOutcome("invalid_environment", None, "no disk"), False),
        ("candidate", MeasureOutcome("invalid_environment", "candidate", "no disk"), False),
        ("stock", MeasureOutcome("crashed", "candidate", "boom"), False),
    ],
)
def test_only_findings_about_the_engine_under_test_are_kept(
    ledger: Ledger, arm: str, outcome: MeasureOutcome, kept: bool
) -> None:
    def flow() -> Generator[Phase, list[Any], Any]:
        return (yield Phase("p", [measure(job("u", arm))]))

    first = Scheduler(flow(), Workers(answers={"u": outcome}), store(ledger)).run()
    assert first[0].status == outcome.status
    unit = ledger.units("c")[0]
    assert unit.status == ("done" if kept else "failed")
    assert unit.error == (None if kept else outcome.error)
    workers = Workers()
    second = Scheduler(flow(), workers, store(ledger)).run()
    assert second[0].status == (outcome.status if kept else "ok")
    assert ledger.units("c")[0].attempts == (1 if kept else 2)


def test_tasks_that_may_not_start_stay_unrun(ledger: Ledger) -> None:
    workers = Workers()
    closed = []

    def task(name: str) -> Task:
        try:
            outcome = yield from measure(job(name))
        except GeneratorExit:
            closed.append(name)
            raise
        return outcome.status

    may_start: Callable[[], bool] = lambda: len(workers.submitted) < 2  # noqa: E731
    phase = Phase("p", [task(n) for n in "abcd"], may_start)
    assert Scheduler(phases(phase), workers, store(ledger)).run() == [["ok", "ok", None, None]]
    assert workers.submitted == ["a", "b"] and closed == ["c", "d"]


def test_a_task_begun_before_the_kill_goes_on_although_nothing_new_may_start(
    ledger: Ledger,
) -> None:
    first = Scheduler(phases(Phase("p", [two_units("a"), one_unit("b")])), Workers(), store(ledger))
    for _ in range(3):
        first.step()
    workers = Workers()
    phase = Phase("p", [two_units("a"), one_unit("b")], lambda: False)
    result = Scheduler(phases(phase), workers, store(ledger)).run()
    assert result == [[({"unit": "a:1"}, {"unit": "a:2"}), None]]
    assert workers.submitted == ["a:2"]


def test_the_wrong_kind_of_outcome_is_an_error(ledger: Ledger) -> None:
    workers = Workers(answers={"u": VerifyOutcome("lossless", "")})
    with pytest.raises(TypeError, match="u: a measurement ended with VerifyOutcome"):
        Scheduler(phases(Phase("p", [one_unit("u")])), workers, store(ledger)).run()


def test_outcomes_survive_the_ledger(ledger: Ledger) -> None:
    forcing = VerifyJob("v", "s", "c", "t")
    lossy = VerifyOutcome("not_lossless", "1 mismatch", {"a": 1}, {"b": [1.5]}, {"c": None})
    measured = MeasureOutcome("ok", None, "", {"r": [1]}, [{"x": 2}], True, {"w": 1.0}, 3.5)
    units = store(ledger)
    for given, outcome in ((forcing, lossy), (job("m"), measured)):
        assert units.known(given) is None
        units.start(given)
        assert units.known(given) is None
        units.end(given, outcome)
        assert units.known(given) == outcome


def test_local_workers_run_each_kind_with_its_function(ledger: Ledger) -> None:
    def task() -> Task:
        measured = yield from measure(job("m"))
        forced = yield from verify(VerifyJob("v", "s", "c", "t"))
        return measured.error, forced.reason

    workers = LocalWorkers(
        lambda j: MeasureOutcome("ok", error=f"ran {j.unit}"),
        lambda j: VerifyOutcome("lossless", f"forced {j.unit}"),
    )
    assert workers.capacity == 1
    result = Scheduler(phases(Phase("p", [task()])), workers, store(ledger)).run()
    assert result == [[("ran m", "forced v")]]


def test_job_arms_are_plain_values() -> None:
    assert replace(job("a"), unit="b") == job("b")


class TurnTaking(Workers):
    """One device; what waits for forcing is forced when nothing is left to measure, in one go."""

    def __init__(self) -> None:
        super().__init__(1)
        self.forcing_waits = True
        self.batches: list[list[str]] = []
        self._ended: list[tuple[Job, Outcome]] = []

    def wait(self) -> tuple[Job, Outcome]:
        if self._ended:
            return self._ended.pop(0)
        measured = [job for job in self.flight if isinstance(job, MeasureJob)]
        if measured:
            self.flight.remove(measured[0])
            return measured[0], MeasureOutcome("ok", recording={"unit": measured[0].unit})
        batch, self.flight = self.flight, []
        self.batches.append([job.unit for job in batch])
        self._ended = [(job, VerifyOutcome("lossless", "")) for job in batch]
        return self._ended.pop(0)


def measured_and_forced(name: str) -> Task:
    outcome = yield from measure(job(f"measure:{name}"))
    forced = yield from verify(VerifyJob(f"verify:{name}", "s", "c", "t"))
    return outcome.recording, forced.status


def test_where_forcing_needs_the_device_a_round_is_measured_first_and_forced_in_one_batch(
    ledger: Ledger,
) -> None:
    workers = TurnTaking()
    phase = Phase("round", [measured_and_forced(name) for name in "abc"])
    later = Phase("merge", [measured_and_forced("d")])
    result = Scheduler(phases(phase, later), workers, store(ledger)).run()
    assert workers.batches == [["verify:a", "verify:b", "verify:c"], ["verify:d"]]
    assert [status for _, status in result[0]] == ["lossless"] * 3
    assert set(statuses(ledger).values()) == {"done"}


def test_where_forcing_needs_no_device_each_candidate_is_forced_before_the_next_is_measured(
    ledger: Ledger,
) -> None:
    workers = Workers(answers={f"verify:{n}": VerifyOutcome("lossless", "") for n in "ab"})
    phase = Phase("round", [measured_and_forced(name) for name in "ab"])
    Scheduler(phases(phase), workers, store(ledger)).run()
    assert workers.submitted == ["measure:a", "verify:a", "measure:b", "verify:b"]
