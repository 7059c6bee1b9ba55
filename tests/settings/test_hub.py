"""Hub downloads through the real client library, from a stub on the loopback interface."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from settings import hub
from settings.errors import ProvisionError
from settings.prompt_sets import PROMPT_SETS, HubFile, RowSet, absent_hub_sets, rows_of
from settings.revisions import recorded_revision, revisions_file
from settings.schema import Checkpoint, PromptSource
from settings.weight_hashes import pin_of
from settings.weights import ensure_checkpoint, present_checkpoint
from tests.settings.hub_stub import HubStub, serving

FILES = {
    "config.json": b'{"a": 1}',
    "model-1.safetensors": b"1" * 3000,
    "model-2.safetensors": b"2" * 5000,
    "README.md": b"not needed",
}
WANTED = sorted(set(FILES) - {"README.md"})
OPEN = Checkpoint(source="hub", repository="org/model", revision="resolve", licence="x")


@pytest.fixture(autouse=True)
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SPECFARM_DATA", str(tmp_path))
    return tmp_path


@pytest.fixture
def stub(monkeypatch: pytest.MonkeyPatch) -> Iterator[HubStub]:
    with serving(HubStub(files=dict(FILES))) as found:
        monkeypatch.setattr(hub, "ENDPOINT", found.url)
        yield found


def pinned(stub: HubStub) -> Checkpoint:
    return OPEN.model_copy(update={"revision": stub.commit})


def test_a_snapshot_holds_what_an_engine_reads_and_is_asked_for_once(stub: HubStub) -> None:
    assert present_checkpoint(pinned(stub), "m") is None
    folder = ensure_checkpoint(pinned(stub), "m")
    assert folder.name == f"model-{stub.commit[:12]}"
    assert {p.name: p.read_bytes() for p in folder.iterdir() if p.name != "provenance.json"} == {
        name: FILES[name] for name in WANTED
    }
    assert not any(path.is_symlink() for path in folder.iterdir())
    asked = len(stub.asked)
    assert ensure_checkpoint(pinned(stub), "m") == folder == present_checkpoint(pinned(stub), "m")
    assert len(stub.asked) == asked and not revisions_file().exists()


def test_an_open_revision_is_recorded_once_and_kept(stub: HubStub) -> None:
    assert present_checkpoint(OPEN, "m") is None and pin_of(OPEN) == "hub:not pinned"
    folder = ensure_checkpoint(OPEN, "m")
    first = stub.commit
    assert recorded_revision("org/model") == first and pin_of(OPEN) == f"hub:{first}"
    written = json.loads(revisions_file().read_text())["model:org/model"]
    assert written["revision"] == first and written["resolved"].endswith("Z")
    stub.commit = "d" * 40  # the hub moves on; what was recorded stays
    assert ensure_checkpoint(OPEN, "m") == folder == present_checkpoint(OPEN, "m")
    assert recorded_revision("org/model") == first
    assert not list(revisions_file().parent.glob(".resolved_revisions.json.[0-9]*"))


def test_a_download_goes_on_where_it_broke_off(stub: HubStub, data: Path) -> None:
    stub.broken = {"model-2.safetensors"}
    with pytest.raises(ProvisionError, match=r"reached for org/model.*arrived is kept"):
        ensure_checkpoint(OPEN, "m")
    assert recorded_revision("org/model") == stub.commit
    assert not list((data / "shared/models").glob("model-*"))
    stub.broken = set()
    stub.asked.clear()
    lines: list[str] = []
    ensure_checkpoint(OPEN, "m", lines.append)
    assert "model-2.safetensors" in stub.downloads()
    assert "model-1.safetensors" not in stub.downloads()
    assert any(f"of {len(WANTED)} files" in line for line in lines)


def test_no_room_is_said_before_anything_is_fetched(
    stub: HubStub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=1_000_004_000))
    with pytest.raises(ProvisionError, match=r"org/model at c+ needs 0\.0 GB.*SPECFARM_DATA"):
        ensure_checkpoint(pinned(stub), "m")
    assert stub.downloads() == []


def test_what_is_not_what_was_listed_is_refused(stub: HubStub, data: Path) -> None:
    stub.listed = {"model-1.safetensors": 2999}
    with pytest.raises(ProvisionError, match=r"model-1\.safetensors") as caught:
        ensure_checkpoint(pinned(stub), "m")
    assert "2999" in str(caught.value)
    assert not list((data / "shared/models").glob("model-*"))
    del stub.files["config.json"]
    with pytest.raises(ProvisionError, match=r"no config\.json"):
        ensure_checkpoint(pinned(stub), "m")


def test_refusals_and_silence_are_told_apart(
    stub: HubStub, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ProvisionError, match=r"refused org/model at eeee.*name and revision"):
        ensure_checkpoint(OPEN.model_copy(update={"revision": "e" * 40}), "m")
    with pytest.raises(ProvisionError, match=r"refused org/other.*name and revision"):
        ensure_checkpoint(OPEN.model_copy(update={"repository": "org/other"}), "m")
    monkeypatch.setattr(hub, "ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(ProvisionError, match=r"cannot be reached for org/model.*copy shared/"):
        ensure_checkpoint(OPEN, "m")
    assert recorded_revision("org/model") is None


def test_a_spoilt_record_is_named(data: Path) -> None:
    revisions_file().write_text('{"model:org/model": {"revision": "main"}}')
    with pytest.raises(ProvisionError, match=r"resolved_revisions\.json cannot be read"):
        present_checkpoint(OPEN, "m")


def test_a_prompt_set_of_the_hub_follows_the_same_rules(
    stub: HubStub, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [{"unique_id": i, "problem": f"{i} + 1?"} for i in range(3)]
    stub.files = {"test.jsonl": b"\n".join(json.dumps(row).encode() for row in rows)}
    known = PROMPT_SETS["math500"]
    assert isinstance(known, RowSet)
    source = HubFile("org/model", "test.jsonl")
    monkeypatch.setitem(PROMPT_SETS, "math500", replace(known, source=source))
    asked = PromptSource(set="math500", count=3, revision="resolve")
    assert absent_hub_sets([asked]) == ["math500"]
    assert [row.id for row in rows_of(asked)] == ["0", "1", "2"]
    assert absent_hub_sets([asked]) == []
    assert recorded_revision("org/model", "dataset") == stub.commit
    assert recorded_revision("org/model") is None
