"""`evaluate` in the simulated farm: one set of baselines, each candidate its own verdict."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from engines.process_registry import ProcessRegistry, new_record
from farm.campaign.scheduler import Scheduler, UnitStore
from farm.report.evaluation import evaluation_text
from farm.results import CandidateResult
from farm.search.assemble import unit_keys
from farm.search.evaluate import (
    Candidate,
    _flow,
    evaluate,
    from_commit,
    from_folder,
    from_patch,
)
from farm.search.session import open_ledger
from farm.workers.codec import decode_outcome, encode_outcome
from settings.errors import SpecfarmError
from tests.farm.campaign.simulation import Effect, Farm, Recorder, World

EFFECTS = {
    "fast": Effect(1.3),
    "faster": Effect(1.5),
    "same": Effect(1.0),
    "slow": Effect(0.8),
    "lossy": Effect(1.6, lossy=True),
}


def through(tmp_path: Path, *names: str) -> tuple[Farm, tuple[CandidateResult, ...]]:
    farm = Farm(tmp_path, World(EFFECTS), {1: []})
    given = [(Candidate(name, patch=name), None) for name in names]
    units = UnitStore(farm.ledger, unit_keys(farm.context), encode_outcome, decode_outcome)
    rows = Scheduler(_flow(farm.context, given), farm.workers, units).run()
    return farm, rows


def test_several_get_their_verdicts_in_the_order_given(tmp_path: Path) -> None:
    _, rows = through(tmp_path, "slow", "fast", "lossy", "same", "faster")
    assert [row.mechanism for row in rows] == ["slow", "fast", "lossy", "same", "faster"]
    verdicts = [row.decision.verdict.value for row in rows]
    assert verdicts[0] == "not_faster" and verdicts[2] == "not_lossless"
    assert verdicts[1] == verdicts[4] == "accepted"
    assert verdicts[3] in ("not_faster", "inconclusive")
    assert [row.heldout_to_stock is not None for row in rows] == [
        verdict == "accepted" for verdict in verdicts
    ]


def test_baselines_are_measured_once_however_many_are_given(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "three").mkdir()
    one, _ = through(tmp_path / "one", "same")
    three, _ = through(tmp_path / "three", "same", "slow", "lossy")
    counts = [
        sum(unit.phase in ("aa", "beside") for unit in farm.ledger.units("sim"))
        for farm in (one, three)
    ]
    assert counts[0] == counts[1] > 0


def test_two_of_one_name_are_two_candidates(tmp_path: Path) -> None:
    _, rows = through(tmp_path, "fast", "fast")
    assert len({row.candidate_id for row in rows}) == 2


def test_one_candidate_is_a_sentence_several_are_a_table(tmp_path: Path) -> None:
    _, rows = through(tmp_path, "fast", "lossy")
    assert evaluation_text(rows[:1]) == f"accepted: {rows[0].decision.reason}\n"
    text = evaluation_text(rows, width=120)
    lines = text.splitlines()
    assert max(map(len, lines)) <= 120
    table = {line.split()[0]: line for line in lines if line.strip()}
    assert "accepted" in table["fast"] and "not_lossless" in table["lossy"]
    assert any(line.startswith("not_lossless  lossy: ") for line in lines)


def test_a_wrong_path_is_named_before_anything_runs(tmp_path: Path) -> None:
    (tmp_path / "empty.patch").write_text(" \n")
    for make, path, what in (
        (from_patch, tmp_path / "no.patch", "is not a file"),
        (from_patch, tmp_path / "empty.patch", "is empty"),
        (from_folder, tmp_path / "nowhere", "is not a folder"),
        (from_folder, tmp_path, "holds no engine.toml"),
    ):
        with pytest.raises(SpecfarmError, match=what):
            make(path)
    assert from_commit("a" * 40).name == "a" * 12


def test_a_patch_is_taken_byte_for_byte(tmp_path: Path) -> None:
    content = b"--- a/x\r\n+++ b/x\n@@ -1 +1 @@\n-\xff\n+b\n"
    (tmp_path / "odd.patch").write_bytes(content)
    found = from_patch(tmp_path / "odd.patch")
    assert found.name == "odd" and found.patch.encode("utf-8", "surrogateescape") == content


def test_engines_of_a_killed_farm_are_ended_first_and_a_failed_evaluation_is_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPECFARM_DATA", str(tmp_path))
    # A farm that is gone: no process has its number and start time.
    record = new_record(
        setting="tiny",
        arm="stock",
        tree_hash="0" * 40,
        port=1,
        purpose="farm",
        scratch=str(tmp_path),
    )
    record = replace(record, owner_start_time=record.owner_start_time + 1, scratch="")
    left = subprocess.Popen(["sleep", "600"], start_new_session=True)
    ProcessRegistry().started(record, left.pid, 0)

    def no_weights(*_: object) -> None:
        raise SpecfarmError("no weights")

    monkeypatch.setattr("farm.search.evaluate.assemble", no_weights)
    observer = Recorder()
    try:
        with pytest.raises(SpecfarmError, match="no weights"):
            evaluate("tests/data/settings/tiny", [Candidate("x", patch="x")], observer)
        assert left.wait(timeout=10) < 0
    finally:
        left.kill()
    assert observer.messages == [f"ended stock (pid {left.pid}) of a killed run"]
    assert [row.status for row in open_ledger().campaigns()] == ["stopped"]
