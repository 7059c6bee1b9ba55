"""`specfarm certify` on a promoted engine in which one thing was changed: it fails before anything
is launched, revokes the certificate, and the engine is served only to who asks for it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from engines.certificate import certificate_bytes, load_certificate, read_certificate, sealed
from engines.errors import EngineError
from engines.resolve import resolve_arm
from engines.tree_store import TreeStore
from farm.campaign.workers import Workers
from farm.cli.app import run
from farm.promotion.certification import Certification, Outcome
from farm.search.certify import certify
from farm.search.certify_target import CertifyOrder, certify_target
from farm.search.session import open_ledger
from settings.loading import load_setting
from tests.farm.gate.planted_farm import Silent
from tests.farm.gate.plants import Plant
from tests.farm.promotion.certified import Certified, certified_engine

FASTER = Plant("faster", frozenset({"accepted"}), "above the A/A floor", speed_up=1.6)
Damage = Callable[[Certified], object]


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Certified]:
    folder = tmp_path_factory.mktemp("certified")
    with certified_engine(folder, "tiny-fp32", "abba", FASTER) as found:
        yield found


@pytest.fixture
def whole(engine: Certified, tmp_path: Path) -> Iterator[Certified]:
    """The engine as it was exported, whatever a test does to it."""
    kept, weights = tmp_path / "kept", engine.weights.read_bytes()
    shutil.copytree(engine.final, kept)
    yield engine
    shutil.rmtree(engine.final)
    shutil.copytree(kept, engine.final)
    engine.weights.write_bytes(weights)


def no_workers(store: TreeStore) -> AbstractContextManager[Workers]:
    raise AssertionError("an engine was to be launched")


def certified(engine: Certified) -> Certification:
    order = CertifyOrder(certify_target(engine.setting))
    return certify(order, Silent(), no_workers)


def flip(path: Path, place: float = 0.5) -> None:
    content = bytearray(path.read_bytes())
    content[int(len(content) * place)] ^= 1
    path.write_bytes(bytes(content))


def edited(engine: Certified, change: Callable[[dict[str, Any]], object]) -> None:
    """The certificate changed by hand; its seal is what it was."""
    data, _ = load_certificate(engine.final)
    change(data)
    (engine.final / "certificate.json").write_bytes(certificate_bytes(data))


def forged(engine: Certified, change: Callable[[dict[str, Any]], object]) -> None:
    """The same by somebody who seals it again."""
    data, _ = load_certificate(engine.final)
    change(data)
    (engine.final / "certificate.json").write_bytes(certificate_bytes(sealed(data)))


def other_id(data: dict[str, Any]) -> None:
    data["heldout"]["draws"][0]["prompts"][0][1][-1] += 1


def better_interval(data: dict[str, Any]) -> None:
    data["speed"]["heldout"]["low"] += 0.01


def other_seed(data: dict[str, Any]) -> None:
    data["heldout"]["seed"] = "00" * 16


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda e: flip(e.final / "stock.bundle"), "files: "),
        (lambda e: flip(next((e.final / "patches").iterdir())), "files: "),
        (lambda e: flip(e.weights, 0.9), "weights: target weights model.safetensors"),
        (lambda e: edited(e, other_seed), "seal: "),
        (lambda e: edited(e, other_id), "seal: "),
        (lambda e: edited(e, better_interval), "seal: "),
        (lambda e: forged(e, other_seed), "seed: "),
        (lambda e: forged(e, other_id), "prompts: draw confirm:c08:0"),
    ],
)
def test_one_change_fails_and_revokes_before_anything_runs(
    whole: Certified, damage: Damage, reason: str
) -> None:
    damage(whole)
    found = certified(whole)
    assert found.outcome is Outcome.FAIL and found.reason.startswith(reason)
    assert found.ours is None and found.theirs["aa_floor"] == 1.021
    data = read_certificate(whole.final)
    assert data["status"] == "revoked" and data["revoked"]["reason"] == found.reason
    saved = json.loads((whole.final / "certification.json").read_text())
    assert saved["outcome"] == "fail" and saved["reason"] == found.reason
    assert open_ledger().campaigns() == []


def test_a_revoked_engine_is_served_only_when_told(whole: Certified) -> None:
    setting = load_setting(whole.setting)
    before = resolve_arm(setting, "final")
    flip(whole.weights, 0.9)
    certified(whole)
    with pytest.raises(EngineError, match=r"status is revoked.*weights.*--revoked"):
        resolve_arm(setting, "final")
    told = resolve_arm(setting, "final", allow_revoked=True)
    assert told.tree_hash == before.tree_hash and told.origin.endswith(", revoked")


def test_the_flag_does_not_excuse_a_changed_tree(whole: Certified) -> None:
    flip(whole.final / "stock.bundle")
    certified(whole)
    with pytest.raises(EngineError, match=r"stock\.bundle"):
        resolve_arm(load_setting(whole.setting), "final", allow_revoked=True)


def test_the_command_says_what_failed(whole: Certified, capsys: pytest.CaptureFixture[str]) -> None:
    flip(whole.final / "stock.bundle")
    assert run(["certify", whole.setting, "--json"]) == 1
    events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert events[-1]["event"] == "certification" and events[-1]["outcome"] == "fail"
    assert run(["certify", whole.setting]) == 1
    shown = capsys.readouterr().out
    assert "fail: files: " in shown and "1.274 [1.243, 1.305]" in shown


def test_a_dry_run_reads_only(whole: Certified, capsys: pytest.CaptureFixture[str]) -> None:
    flip(whole.final / "stock.bundle")
    before = sorted(whole.final.iterdir())
    assert run(["certify", whole.setting, "--dry-run", "--seconds", "20s", "--json"]) == 0
    (plan,) = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert plan["seconds"] == 20.0 and plan["own_prompts"] > 6 and plan["lacks"] == []
    assert run(["certify", whole.setting, "--dry-run"]) == 0
    assert str(whole.final) in capsys.readouterr().out
    assert sorted(whole.final.iterdir()) == before
    assert read_certificate(whole.final)["status"] == "certified"


def test_other_hardware_is_refused_and_changes_nothing(whole: Certified) -> None:
    forged(whole, lambda data: data.update(hardware="h100"))
    before = (whole.final / "certificate.json").read_bytes()
    with pytest.raises(EngineError, match="hardware is h100, this is cpu"):
        certified(whole)
    flip(whole.final / "stock.bundle")
    order = CertifyOrder(certify_target(whole.setting), other_hardware=True)
    assert certify(order, Silent(), no_workers).outcome is Outcome.FAIL
    assert (whole.final / "certificate.json").read_bytes() == before


def test_the_folder_of_a_checkout_comes_first_and_the_other_is_named(
    whole: Certified, tmp_path: Path
) -> None:
    clone = tmp_path / "clone"
    shutil.copytree(Path(whole.setting).parent, clone / "settings")
    name = load_setting(whole.setting).name
    shutil.copytree(whole.final, clone / "settings" / name / "final")
    assert certify_target(whole.setting).folder == whole.final
    found = certify_target(name, checkout=clone)
    assert found.folder == (clone / "settings" / name / "final").resolve()
    assert found.note == ""
    lock = whole.final / "engine.lock"
    tree = load_certificate(whole.final)[0]["hashes"]["final_tree"]
    lock.write_text(lock.read_text().replace(tree, "0" * 40))
    assert f"--folder {whole.final}" in certify_target(name, checkout=clone).note
    with pytest.raises(EngineError):
        resolve_arm(load_setting(whole.setting), "final")


@pytest.mark.parametrize(
    ("damage", "status"),
    [
        (lambda e: flip(e.weights, 0.9), "revoked"),
        (lambda e: flip(e.final / "RESULT.md"), "certified"),
    ],
)
def test_a_copy_is_revoked_with_it_unless_the_folder_alone_is_damaged(
    whole: Certified, damage: Damage, status: str
) -> None:
    promoted = Path(whole.setting) / "final"
    shutil.copytree(whole.final, promoted)
    try:
        damage(whole)
        order = CertifyOrder(certify_target(whole.setting, whole.final))
        assert certify(order, Silent(), no_workers).outcome is Outcome.FAIL
        assert read_certificate(promoted)["status"] == status
        assert read_certificate(whole.final)["status"] == "revoked"
    finally:
        shutil.rmtree(promoted)
