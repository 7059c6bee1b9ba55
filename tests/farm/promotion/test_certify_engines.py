"""`specfarm certify` with real engines: an honest engine passes and stays certified, one that is
slower than stock or commits wrong tokens is revoked; an interrupted run repeats nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from engines.certificate import read_certificate
from engines.tree_store import TreeStore
from farm.campaign.jobs import Job, Outcome
from farm.promotion.certification import Certification
from farm.search.certify import certify
from farm.search.certify_target import CertifyOrder, certify_target
from farm.search.session import open_ledger
from farm.workers.here import workers_here
from farm.workers.local import LocalWorkers
from tests.farm.gate.planted_farm import Silent
from tests.farm.gate.plants import Plant, plants
from tests.farm.promotion.certified import Certified, certified_engine

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
FASTER = Plant("faster", frozenset({"accepted"}), "above the A/A floor", speed_up=1.6)
SLOWER = Plant("slower", frozenset({"not_faster"}), "not above", speed_up=0.7)
LOSSY = next(plant for plant in plants() if plant.name == "wrong_token")


class Interrupted(Exception):
    """The process is gone."""


@contextmanager
def dying_workers(store: TreeStore, units: int) -> Iterator[LocalWorkers]:
    """Ends in the middle of the unit after `units` finished ones."""
    with workers_here(store) as workers:
        done = 0
        wait = workers.wait

        def wait_or_die() -> tuple[Job, Outcome]:
            nonlocal done
            if done == units:
                raise Interrupted
            done += 1
            return wait()

        workers.wait = wait_or_die  # type: ignore[method-assign]
        yield workers


def order_for(engine: Certified) -> CertifyOrder:
    return CertifyOrder(certify_target(engine.setting), seconds=8.0)


def certified(engine: Certified) -> Certification:
    return certify(order_for(engine), Silent())


def test_an_honest_engine_passes_after_an_interruption(tmp_path: Path) -> None:
    with certified_engine(tmp_path, "tiny-fp32", "abba", FASTER) as engine:
        before = (engine.final / "certificate.json").read_bytes()
        with pytest.raises(Interrupted):
            certify(order_for(engine), Silent(), lambda store: dying_workers(store, 4))
        assert not (engine.final / "certification.json").exists()
        ledger = open_ledger()
        (row,) = ledger.campaigns()
        cut = {u.digest: u for u in ledger.units(row.id) if u.status == "done"}
        found = certified(engine)
        assert found.outcome.value == "pass", found.reason
        assert [c.id for c in ledger.campaigns()] == [row.id]
        assert len(cut) == 4
        after = {unit.digest: unit for unit in ledger.units(row.id)}
        assert {digest: after[digest] for digest in cut} == cut
        assert {unit.status for unit in after.values()} == {"done"}
        assert ledger.campaign(row.id).status == "finished"
        assert (engine.final / "certificate.json").read_bytes() == before
        saved = json.loads((engine.final / "certification.json").read_text())
        ours = saved["ours"]
        assert ours["final_to_stock"]["ratio"] == pytest.approx(1.6, abs=0.15)
        assert ours["final_to_stock"]["low"] > ours["aa_floor"]
        assert ours["lossless"]["tokens_checked"] >= 3000
        assert ours["lossless"]["mismatches"] == 0
        assert saved["theirs"]["final_to_stock"]["baseline"] == "native-1f0c1f0c1f0c"
        # Finished means finished: another run is another certification, on prompts of its own.
        again = certify_units(engine)
        assert again.isdisjoint(cut)
        ledger.close()


def certify_units(engine: Certified) -> set[str]:
    """Units of a second certification that dies at its first unit."""
    with pytest.raises(Interrupted):
        certify(order_for(engine), Silent(), lambda store: dying_workers(store, 0))
    ledger = open_ledger()
    newest = ledger.campaigns()[0]
    units = {unit.digest for unit in ledger.units(newest.id)}
    ledger.close()
    return units


@pytest.mark.parametrize(("plant", "reason"), [(SLOWER, "not_faster: "), (LOSSY, "not_lossless: ")])
def test_an_engine_that_is_not_what_it_claims_is_revoked(
    tmp_path: Path, plant: Plant, reason: str
) -> None:
    with certified_engine(tmp_path, "tiny-fp32", "abba", plant) as engine:
        found = certified(engine)
        assert found.outcome.value == "fail" and found.reason.startswith(reason)
        data = read_certificate(engine.final)
        assert data["status"] == "revoked" and data["revoked"]["reason"] == found.reason
        assert data["history"][0]["certificate"]["status"] == "certified"
        assert found.ours is not None and found.ours["lossless"] is not None
