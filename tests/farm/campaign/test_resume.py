"""Killed at every single step, a campaign comes to the same end and repeats nothing finished."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.farm.campaign.simulation import Effect, Farm, World, as_json, proposal

EFFECTS = {
    "a": Effect(1.15),
    "b": Effect(1.10),
    "lossy": Effect(1.5, lossy=True),
    "dead": Effect(status="crashed"),
    "next": Effect(1.08),
}


def build(folder: Path, capacity: int) -> Farm:
    first = [proposal(n) for n in ("a", "lossy", "conflict", "b", "dead")]
    return Farm(
        folder,
        World(EFFECTS),
        {1: first, 2: [proposal("next", knob=True)]},
        canaries=[proposal("noop", "canary_noop")],
        exact=True,
        capacity=capacity,
    )


@pytest.mark.parametrize("capacity", [1, 2])
def test_a_kill_after_any_step_changes_nothing(tmp_path: Path, capacity: int) -> None:
    whole = build(tmp_path / "whole", capacity)
    steps = 0
    while whole.scheduler.step():
        steps += 1
    expected = as_json(whole.scheduler.result.report)
    units = {unit.digest for unit in whole.ledger.units("sim")}
    assert expected["promoted"] is not None and steps > 40

    for killed_after in range(steps + 1):
        farm = build(tmp_path / str(killed_after), capacity)
        for _ in range(killed_after):
            farm.scheduler.step()
        in_flight = {job.unit for job in farm.workers.flight}
        farm.build()
        assert as_json(farm.run().report) == expected
        rows = farm.ledger.units("sim")
        assert {row.digest for row in rows} == units
        assert all(row.status == "done" for row in rows)
        for row in rows:
            again = f"{row.phase}:{row.subject}" in in_flight
            assert row.attempts == (2 if again else 1), (killed_after, row)
        assert set(farm.world.executed.values()) == {1}
        farm.ledger.close()


def test_killed_again_after_every_single_unit(tmp_path: Path) -> None:
    whole = build(tmp_path / "whole", 2)
    expected = as_json(whole.run().report)
    farm = build(tmp_path / "often", 2)
    lives = 0
    while True:
        lives += 1
        before = farm.world.executed.total()
        while farm.scheduler.step() and farm.world.executed.total() == before:
            pass
        if farm.scheduler.finished:
            break
        farm.build()
    assert lives > 20
    assert as_json(farm.scheduler.result.report) == expected
    assert farm.world.executed == whole.world.executed


def test_a_finished_campaign_replayed_submits_nothing(tmp_path: Path) -> None:
    farm = build(tmp_path, 1)
    first = as_json(farm.run().report)
    farm.build()
    assert as_json(farm.run().report) == first
    assert farm.workers.submitted == []


def test_another_tree_under_the_same_candidate_id_is_measured_and_forced_anew(
    tmp_path: Path,
) -> None:
    """A catalogue edited between kill and resume must not inherit the old patch's verdict."""
    world = World({"a": Effect(1.2), "v2": Effect(1.2, lossy=True)})
    farm = Farm(tmp_path, world, {1: [proposal("a")]})
    assert farm.verdicts(farm.run()) == {"a": "accepted"}
    edited = proposal("a")
    object.__setattr__(edited.change, "patch", "v2")
    farm.rounds = {1: [edited]}
    farm.build()
    assert farm.verdicts(farm.run()) == {"a": "not_lossless"}
