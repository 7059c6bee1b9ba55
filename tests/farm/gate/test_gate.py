"""The whole gate on real engines: every planted candidate gets its verdict, the campaign goes on.

One campaign over all plants. It is started in a process of its own, killed in the middle of a
measurement (while an engine is stopped for the other's turn), resumed here to its end, and resumed
once more when there is nothing left to do.
"""

from __future__ import annotations

import os
import re
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from engines.final_folder import rebuild_final
from engines.proc_files import all_processes, is_running, proc_stat
from engines.process_registry import ProcessRecord, ProcessRegistry
from engines.tree_store import TreeStore
from farm.ledger import Ledger, Unit
from farm.promotion.promote import final_dir, load_final
from farm.results import CampaignReport, CandidateResult
from farm.search.finish import promote_campaign
from farm.search.session import open_ledger
from settings.paths import checkout_root, work_dir
from tests.farm.gate.planted_farm import Life, install, live, prepare
from tests.farm.gate.plants import HONEST_SPEED_UP, Plant, plants

pytestmark = [pytest.mark.timeout(1200), pytest.mark.slow]
KILLED_IN = "early_stop"
_START = "from tests.farm.gate.planted_farm import main; main()"
_PATIENCE_S = 300.0


@dataclass(frozen=True)
class Gate:
    """A finished campaign and what was seen on the way."""

    setting: str
    folder: Path
    plants: tuple[Plant, ...]
    ledger: Ledger
    campaign: str
    killed: list[ProcessRecord]
    survivors: list[int]
    before: list[Unit]
    life: Life
    launches: int

    def row(self, name: str) -> CandidateResult:
        found = [c for c in self.life.report.candidates if c.mechanism == name]
        assert len(found) == 1, (name, len(found))
        return found[0]


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(("tiny-fp32", "abba"), id="fp32"),
        pytest.param(("tiny", "slices"), id="bf16"),
    ],
)
def gate(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Gate]:
    setting, mode = request.param
    planted = plants()
    folder = tmp_path_factory.mktemp("gate")
    with pytest.MonkeyPatch.context() as patch:
        variables = prepare(folder, setting, mode, planted)
        for name, value in variables.items():
            patch.setenv(name, value)
        install()
        killed, before = _run_and_kill(folder, variables)
        ledger = open_ledger()
        (row,) = ledger.campaigns()
        # What the next start does first.
        ProcessRegistry().reap_leftovers()
        survivors = [r.pid for r in killed if is_running(r.pid, r.start_time)]
        life = live(ledger, row)
        yield Gate(
            setting, folder, planted, ledger, row.id, killed, survivors, before, life, _launches()
        )
        ledger.close()


def _run_and_kill(
    folder: Path, variables: dict[str, str]
) -> tuple[list[ProcessRecord], list[Unit]]:
    """Starts the campaign elsewhere, kills it while an arm waits for the other in `KILLED_IN`."""
    log = folder / "first-life.log"
    path = os.pathsep.join([str(checkout_root()), str(checkout_root() / "engines" / "native")])
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-c", _START],
            cwd=checkout_root(),
            env={**os.environ, **variables, "PYTHONPATH": path},
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        deadline = time.monotonic() + _PATIENCE_S
        records: list[ProcessRecord] = []
        while not any(_stopped(record.pid) for record in records):
            assert process.poll() is None, log.read_text()[-4000:]
            assert time.monotonic() < deadline, log.read_text()[-4000:]
            time.sleep(0.05)
            measuring = re.fullmatch(rf"measure:.*-{KILLED_IN}", _running_unit())
            records = [r for r in ProcessRegistry().records() if r.pid] if measuring else []
    finally:
        process.kill()
        process.wait()
    with closing(open_ledger()) as ledger:
        return records, ledger.units(ledger.campaigns()[0].id)


def _stopped(pid: int) -> bool:
    stat = proc_stat(pid)
    return stat is not None and stat.state == "T"


def _running_unit() -> str:
    """`phase:subject` of the unit that runs now; read only, so that polling disturbs nobody."""
    path = work_dir() / "ledger.sqlite"
    if not path.exists():
        return ""
    question = "SELECT phase || ':' || subject FROM units WHERE status = 'running'"
    uri = f"file:{path}?mode=ro"
    with suppress(sqlite3.OperationalError), closing(sqlite3.connect(uri, uri=True)) as ledger:
        for (name,) in ledger.execute(question):
            return str(name)
    return ""


def _launches() -> int:
    """Each launch has a log of its own."""
    return len(list(work_dir("logs", "engines").glob("*.log")))


def test_every_plant_gets_its_verdict(gate: Gate) -> None:
    found = {
        c.mechanism: (c.decision.verdict.value, c.decision.reason)
        for c in gate.life.report.candidates
    }
    assert set(found) == {plant.name for plant in gate.plants}
    wrong = [
        (plant.name, *found[plant.name])
        for plant in gate.plants
        if found[plant.name][0] not in plant.verdicts or plant.reason not in found[plant.name][1]
    ]
    assert not wrong


def test_one_wrong_token_in_a_thousand_is_counted(gate: Gate) -> None:
    summary = gate.row("wrong_token").lossless
    assert summary is not None
    assert summary.tokens_checked >= 1000
    assert 1 <= summary.mismatches <= summary.tokens_checked // 500


def test_a_lossy_plant_was_faster_and_still_refused(gate: Gate) -> None:
    ratio = gate.row("early_stop").to_stock
    assert ratio is not None and ratio.low > (gate.life.report.aa_floor or 0)


def test_the_honest_speed_up_has_the_planted_size(gate: Gate) -> None:
    row = gate.row("honest")
    assert row.to_stock is not None and row.heldout_to_stock is not None
    for found in (row.to_stock, row.heldout_to_stock):
        assert found.ratio == pytest.approx(HONEST_SPEED_UP, abs=0.06), found
        assert found.low > (gate.life.report.aa_floor or 0)
    assert row.tau_ratio == pytest.approx(1.0)
    assert row.lossless is not None and row.lossless.mismatches == 0
    assert row.lossless.tokens_checked >= 3000


def test_the_winner_is_exported_and_can_be_rebuilt_elsewhere(gate: Gate, tmp_path: Path) -> None:
    row = gate.row("honest")
    assert gate.life.report.promoted == row.candidate_id
    final = load_final(final_dir(gate.setting), gate.setting)
    assert final.certificate["status"] == "certified"
    assert final.certificate["campaign"] == gate.campaign
    rebuilt = rebuild_final(final.folder, TreeStore(root=tmp_path / "elsewhere"))
    assert rebuilt.tree_hash == row.tree_hash


def test_promote_copies_it_into_a_checkout(gate: Gate, tmp_path: Path) -> None:
    home = tmp_path / "settings" / gate.setting
    home.mkdir(parents=True)
    (home / "setting.toml").write_text("")
    promoted = promote_campaign(gate.ledger, gate.campaign, tmp_path)
    assert promoted == home / "final"
    assert load_final(promoted, gate.setting).lock.final_tree == gate.row("honest").tree_hash


def test_no_process_and_no_port_is_left(gate: Gate) -> None:
    assert ProcessRegistry().records() == []
    marker = str(gate.folder).encode()
    assert [s.pid for s in all_processes() if s.pid != os.getpid() and _runs(s.pid, marker)] == []
    ports = [
        int(found[1])
        for log in work_dir("logs", "engines").glob("*.log")
        if (found := re.search(r"-(\d+)\.log$", log.name))
    ]
    assert len(ports) > 10
    assert [port for port in ports if _answers(port)] == []
    assert not any((work_dir("scratch")).iterdir())


def _runs(pid: int, marker: bytes) -> bool:
    try:
        return marker in Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return False


def _answers(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def test_a_kill_in_mid_measurement_leaves_no_engine(gate: Gate) -> None:
    assert len(gate.killed) >= 2
    assert gate.survivors == []


def test_finished_units_survive_the_kill_unrepeated(gate: Gate) -> None:
    after = {unit.digest: unit for unit in gate.ledger.units(gate.campaign)}
    done = [unit for unit in gate.before if unit.status == "done"]
    assert {u.phase for u in done} >= {"aa", "beside", "measure", "verify"}
    for unit in done:
        assert after[unit.digest] == unit
    cut = [unit for unit in gate.before if unit.status == "running"]
    assert [u.subject.endswith(KILLED_IN) for u in cut] == [True]
    assert after[cut[0].digest].attempts == 2
    names = {f"{u.phase}:{u.subject}" for u in done}
    assert not names & set(gate.life.submitted)


def test_every_unit_of_the_ledger_is_done_once(gate: Gate) -> None:
    units = gate.ledger.units(gate.campaign)
    assert {unit.status for unit in units} == {"done"}
    assert sum(unit.attempts for unit in units) == len(units) + 1
    assert gate.ledger.campaign(gate.campaign).status == "finished"


def test_resuming_a_finished_campaign_launches_nothing(gate: Gate) -> None:
    again = live(gate.ledger, gate.ledger.campaign(gate.campaign))
    assert again.submitted == []
    assert _launches() == gate.launches
    assert _verdicts(again.report) == _verdicts(gate.life.report)
    assert again.report.final_to_stock == gate.life.report.final_to_stock


def _verdicts(report: CampaignReport) -> dict[str, str]:
    return {c.candidate_id: c.decision.verdict.value for c in report.candidates}
