"""From what was measured to pass, fail or inconclusive, and what that does to the certificate."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engines.certificate import check_folder, load_certificate, read_certificate, sha256
from engines.errors import EngineError
from farm.promotion.certification import (
    Certification,
    Outcome,
    Remeasured,
    our_numbers,
    outcome_of,
    record,
    their_numbers,
)
from farm.promotion.checks import Check, State
from farm.results import RatioInterval
from farm.verdicts import Decision, Verdict
from tests.farm.promotion.finals import write_final

QUIET = RatioInterval(1.001, 0.99, 1.012, "native-x", 3, "t")
NOISY = RatioInterval(1.02, 1.004, 1.04, "native-x", 3, "t")
FAST = RatioInterval(1.3, 1.25, 1.35, "native-x", 12, "bootstrap")


def measured(verdict: Verdict, aa: RatioInterval = QUIET) -> Remeasured:
    return Remeasured(Decision(verdict, "because"), aa, 1.012, to_stock=FAST)


@pytest.mark.parametrize(
    ("verdict", "aa", "outcome"),
    [
        (Verdict.ACCEPTED, QUIET, Outcome.PASS),
        (Verdict.ACCEPTED, NOISY, Outcome.INCONCLUSIVE),
        (Verdict.NOT_FASTER, QUIET, Outcome.FAIL),
        (Verdict.NOT_FASTER, NOISY, Outcome.INCONCLUSIVE),
        (Verdict.INCONCLUSIVE, QUIET, Outcome.INCONCLUSIVE),
        (Verdict.NOT_LOSSLESS, QUIET, Outcome.FAIL),
        (Verdict.NOT_LOSSLESS, NOISY, Outcome.FAIL),
        (Verdict.CHEATING, NOISY, Outcome.FAIL),
        (Verdict.CRASHED, QUIET, Outcome.FAIL),
        (Verdict.TIMEOUT, NOISY, Outcome.FAIL),
        (Verdict.INFEASIBLE, QUIET, Outcome.FAIL),
    ],
)
def test_the_outcome_of_every_verdict(
    verdict: Verdict, aa: RatioInterval, outcome: Outcome
) -> None:
    found, reason = outcome_of(measured(verdict, aa))
    assert found is outcome and reason


def test_where_stock_failed_nothing_is_said_of_the_engine() -> None:
    with pytest.raises(EngineError, match="because"):
        outcome_of(measured(Verdict.INVALID_ENVIRONMENT))


def certification(folder: Path, outcome: Outcome, **changes: Any) -> Certification:
    data, raw = load_certificate(folder)
    given = Certification(
        outcome=outcome,
        reason=f"{outcome.value} it is",
        setting=data["setting"],
        final_tree=data["hashes"]["final_tree"],
        certificate_sha256=sha256(raw),
        date="2026-12-01T00:00:00Z",
        checks=(Check("seal", State.OK, "whole"),),
        theirs=their_numbers(data),
        ours=our_numbers(measured(Verdict.ACCEPTED)),
        here={"campaign": "certify-1"},
    )
    return replace(given, **changes)


def saved(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "certification.json").read_text())
    return found


@pytest.mark.parametrize("outcome", [Outcome.PASS, Outcome.INCONCLUSIVE])
def test_both_sets_of_numbers_are_kept_and_the_status_stays(
    tmp_path: Path, outcome: Outcome
) -> None:
    folder = write_final(tmp_path / "final")
    before = (folder / "certificate.json").read_bytes()
    assert not record(folder, certification(folder, outcome))
    assert (folder / "certificate.json").read_bytes() == before
    found = saved(folder)
    assert found["outcome"] == outcome.value
    assert found["theirs"]["final_to_stock"]["low"] == pytest.approx(1.243)
    assert found["ours"]["final_to_stock"]["low"] == 1.25
    assert found["theirs"]["aa_floor"] == 1.021 and found["ours"]["aa_floor"] == 1.012
    assert found["theirs"]["machine"] == {"cpu": "Example CPU"}
    assert found["checks"] == [{"name": "seal", "state": "ok", "detail": "whole"}]
    check_folder(folder)


def test_a_failure_revokes_and_keeps_what_was(tmp_path: Path) -> None:
    folder = write_final(tmp_path / "final")
    original, raw = load_certificate(folder)
    assert record(folder, certification(folder, Outcome.FAIL))
    data = check_folder(folder)
    assert data["status"] == "revoked"
    assert data["revoked"]["reason"] == "fail it is"
    assert data["revoked"]["date"] == "2026-12-01T00:00:00Z"
    assert data["history"] == [{"file_sha256": sha256(raw), "certificate": original}]
    assert {k: data[k] for k in original if k not in ("status", "certificate_sha256")} == {
        k: v for k, v in original.items() if k not in ("status", "certificate_sha256")
    }
    assert sorted(p.name for p in tmp_path.iterdir()) == ["final"]


def test_a_second_failure_changes_the_certification_only(tmp_path: Path) -> None:
    folder = write_final(tmp_path / "final")
    record(folder, certification(folder, Outcome.FAIL))
    revoked = (folder / "certificate.json").read_bytes()
    assert not record(folder, certification(folder, Outcome.FAIL, reason="again"))
    assert (folder / "certificate.json").read_bytes() == revoked
    assert saved(folder)["reason"] == "again"


def test_a_failure_on_other_hardware_revokes_nothing(tmp_path: Path) -> None:
    folder = write_final(tmp_path / "final")
    assert not record(folder, certification(folder, Outcome.FAIL), may_revoke=False)
    assert read_certificate(folder)["status"] == "certified"
    assert saved(folder)["outcome"] == "fail"


def test_a_first_version_is_sealed_when_it_is_revoked(tmp_path: Path) -> None:
    folder = write_final(tmp_path / "final")
    data, _ = load_certificate(folder)
    del data["certificate_sha256"]
    old = {**data, "schema_version": 1}
    (folder / "certificate.json").write_text(json.dumps(old, indent=2))
    record(folder, certification(folder, Outcome.FAIL))
    found = check_folder(folder)
    assert found["schema_version"] == 1 and found["status"] == "revoked"
    assert found["history"][0]["certificate"] == old


def test_earlier_certifications_stay_on_record(tmp_path: Path) -> None:
    folder = write_final(tmp_path / "final")
    for number, outcome in enumerate((Outcome.INCONCLUSIVE, Outcome.INCONCLUSIVE, Outcome.PASS)):
        record(folder, certification(folder, outcome, here={"campaign": f"certify-{number}"}))
    assert [e["outcome"] for e in saved(folder)["earlier"]] == ["inconclusive", "inconclusive"]
    # The same certification again, after a kill between its two files, is not another one.
    record(folder, certification(folder, Outcome.PASS, here={"campaign": "certify-2"}))
    assert len(saved(folder)["earlier"]) == 2
    (folder / "certification.json").write_text("[")
    record(folder, certification(folder, Outcome.PASS))
    assert saved(folder)["earlier"] == []


def test_a_certificate_changed_beyond_reading_still_gets_its_verdict(tmp_path: Path) -> None:
    assert their_numbers({"speed": 3, "lossless": []})["final_to_stock"] is None
