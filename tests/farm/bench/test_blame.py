"""Which arm a failure is put on, in every place a measurement can fail."""

from __future__ import annotations

import time

import pytest

from engines.errors import EngineCrashed, EngineError, EngineTimeout
from farm.bench.blame import blaming
from farm.bench.modes import measure
from farm.bench.plan import MeasurementPlan
from tests.farm.bench.fakes import FakeEngine, Ledger, request

REQUESTS = [request("p0"), request("p1")]


class Flaky(FakeEngine):
    """Does not answer /flush_cache."""

    def flush_cache(self) -> None:
        raise EngineTimeout("flush did not answer")


class SlowToStart(FakeEngine):
    """Takes its time for the first token; the others are stopped meanwhile."""

    def stream(self, asked, on_event=None, cut=None):  # type: ignore[no-untyped-def]
        self.is_running.wait()
        time.sleep(0.15)
        return super().stream(asked, on_event, cut)


class ImpatientClient(FakeEngine):
    """Its requests time out 0.1 s after their first token, stopped or not: the clock is the
    client's."""

    def stream(self, asked, on_event=None, cut=None):  # type: ignore[no-untyped-def]
        on_event(time.monotonic(), 1)
        time.sleep(0.1)
        raise EngineTimeout("/generate did not answer within 0.1 s")


def plan(mode: str) -> MeasurementPlan:
    return MeasurementPlan(mode=mode, prompts=2, slice_s=(0.004, 0.008))  # type: ignore[arg-type]


def blamed(engines: dict[str, FakeEngine], mode: str) -> EngineError:
    with pytest.raises(EngineError) as raised:
        measure(engines, REQUESTS, plan(mode))
    assert all(engine.is_running.is_set() for engine in engines.values())
    return raised.value


@pytest.mark.parametrize("mode", ["slices", "abba"])
@pytest.mark.parametrize("culprit", ["stock", "candidate"])
@pytest.mark.parametrize("fail_at", [1, 6])
def test_the_arm_whose_request_failed_is_named(mode: str, culprit: str, fail_at: int) -> None:
    engines = {
        label: FakeEngine(label, Ledger(), fail_at=fail_at if label == culprit else None)
        for label in ("stock", "candidate")
    }
    error = blamed(engines, mode)
    assert isinstance(error, EngineCrashed) and error.arm == culprit


@pytest.mark.parametrize("mode", ["slices", "abba"])
def test_a_cache_that_cannot_be_flushed_is_its_own_arms(mode: str) -> None:
    engines = {"stock": FakeEngine("stock"), "candidate": Flaky("candidate")}
    assert blamed(engines, mode).arm == "candidate"


def test_the_first_of_two_failures_counts() -> None:
    """Once one arm is dead the other's trouble is a consequence."""
    engines = {
        "stock": FakeEngine("stock", ticks=4, fail_at=9),
        "candidate": FakeEngine("candidate", ticks=1, fail_at=3),
    }
    assert blamed(engines, "slices").arm == "candidate"


def test_an_arm_that_times_out_while_it_is_stopped_blames_the_one_that_runs() -> None:
    engines = {"stock": ImpatientClient("stock"), "candidate": SlowToStart("candidate")}
    error = blamed(engines, "slices")
    # Whichever leads: stopped stock runs out of time while the candidate has not begun.
    assert isinstance(error, EngineTimeout)
    assert error.arm == "candidate"
    assert "took so long" in str(error)


def test_a_label_once_given_stays() -> None:
    with pytest.raises(EngineCrashed) as raised, blaming("outer"), blaming("inner"):
        raise EngineCrashed("gone")
    assert raised.value.arm == "inner"
