import hashlib
import json
import subprocess
import sys
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engines.certificate import Status, check_folder
from farm.promotion.errors import PromotionError
from farm.promotion.export import export_final
from farm.verdicts import Decision, Verdict
from settings.paths import checkout_root
from tests.farm.promotion.finals import (
    SEED,
    SETTING,
    STOCK_COMMIT,
    WEIGHTS,
    MemoryStore,
    evidence,
    winner,
    write_final,
)
from tests.farm.report.samples import PATCH, STOCK, sample_report


def files(folder: Path) -> dict[str, bytes]:
    return {
        p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()
    }


def test_the_folder_holds_lock_bundle_series_certificate_and_result(tmp_path: Path) -> None:
    store, report = MemoryStore(), sample_report()
    folder = export_final(report, winner(report), store, tmp_path / "final", evidence())
    found = files(folder)
    assert sorted(found) == [
        *("RESULT.md", "certificate.json", "engine.lock"),
        *("patches/0001-lengthen-k.patch", "patches/0002-change.patch", "stock.bundle"),
    ]
    assert store.asked == [("series", STOCK_COMMIT, f"{264:040x}"), ("bundle", STOCK_COMMIT)]
    assert found["stock.bundle"] == b"# v2 git bundle\n\x00\xff"
    assert found["patches/0002-change.patch"].decode() == PATCH
    lock = tomllib.loads(found["engine.lock"].decode())
    assert lock["setting"] == SETTING
    assert (lock["stock_tree"], lock["stock_commit"]) == (STOCK, STOCK_COMMIT)
    assert (lock["final_tree"], lock["final_commit"]) == (f"{8:040x}", f"{264:040x}")
    assert list(tmp_path.iterdir()) == [folder]


def test_the_certificate_holds_the_evidence(tmp_path: Path) -> None:
    folder = write_final(tmp_path / "final")
    data = json.loads((folder / "certificate.json").read_text())
    assert (data["status"], data["hardware"]) == ("certified", "cpu")
    assert data["speed"]["heldout"]["low"] == pytest.approx(1.243)
    assert data["speed"]["heldout"]["baseline"] == "native-1f0c1f0c1f0c"
    assert data["speed"]["aa_floor"] == 1.021
    assert data["lossless"]["summary"]["tokens_checked"] == 3071
    assert data["lossless"]["thresholds"] == {"near_tie_ulps": 2.0, "delta": 0.01}
    assert data["heldout"]["draws"] == [
        {
            "purpose": "confirm:c08:0",
            "take": None,
            "prompts": [["gsm8k/1", [1, 2, 3]], ["code/7", [4, 5]]],
        },
        {"purpose": "exact:c08", "take": 1, "prompts": [["gsm8k/4", [6]]]},
    ]
    assert data["weights"] == {"pin": WEIGHTS.pin, "files": dict(WEIGHTS.files)}
    assert data["schema_version"] == 2 and data["candidate"] == "c08"
    assert data["heldout"]["seed"] == SEED
    assert data["heldout"]["seed_commitment"] == (
        hashlib.sha256(f"specfarm-heldout:{SEED}".encode()).hexdigest()
    )
    assert data["hashes"]["harness"] == "ab" * 32
    for name, content in files(folder).items():
        if name != "certificate.json":
            assert data["hashes"]["files"][name] == hashlib.sha256(content).hexdigest()
    assert check_folder(folder) == data


def refused(change: str, **changes: Any) -> str:
    report = sample_report()
    best = winner(report)
    store = MemoryStore()
    if change == "verdict":
        best = replace(best, decision=Decision(Verdict.INCONCLUSIVE, "too wide"))
    elif change == "canary":
        best = replace(best, kind="canary_lossy")
    elif change == "no confirmation":
        best = replace(best, heldout_to_stock=None)
    elif change == "below floor":
        report = replace(report, aa_floor=1.2431)
    elif change == "no floor":
        report = replace(report, aa_floor=None)
    elif change == "no change":
        store = MemoryStore(())
    with pytest.raises(PromotionError) as caught:
        export_final(report, best, store, Path("never-written"), evidence(**changes))
    assert not Path("never-written").exists()
    return str(caught.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("verdict", "inconclusive"),
        ("canary", "planted"),
        ("no confirmation", "held-out"),
        ("below floor", "A/A floor"),
        ("no floor", "A/A floor"),
        ("no change", "changes nothing"),
    ],
)
def test_what_is_not_proven_is_not_exported(change: str, message: str) -> None:
    assert message in refused(change)


def test_incomplete_evidence_is_refused() -> None:
    assert "commitment" in refused("", seed="another")
    assert "held-out prompts" in refused("", heldout=())
    assert "revoked" in refused("", status=Status.REVOKED)


KILLED = """
import os, signal, sys
from pathlib import Path
import farm.promotion.export as export
from tests.farm.promotion.finals import write_final
def kill(folder):
    print(len(list(folder.iterdir())), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
export.check_folder = kill
write_final(Path(sys.argv[1]), max_new_tokens=999)
"""


def test_a_kill_in_the_middle_leaves_the_old_final_whole(tmp_path: Path) -> None:
    folder = write_final(tmp_path / "final")
    before = files(folder)
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(folder)],
        cwd=checkout_root(),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stdout) == (-9, "5\n"), done.stderr
    assert files(folder) == before
    check_folder(folder)
    write_final(folder, max_new_tokens=5)
    assert json.loads((folder / "certificate.json").read_text())["heldout"]["max_new_tokens"] == 5
    assert list(tmp_path.iterdir()) == [folder]
