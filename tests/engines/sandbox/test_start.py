"""Starting under a level: names, environments, ports and errors that reach the user."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from engines.engine_process import fresh_port
from engines.errors import EngineCrashed
from engines.process_registry import ProcessRegistry
from engines.sandbox.level import SandboxLevel

from .conftest import StartProbe
from .probe_driver import ManyProcesses


def test_the_launch_names_its_level(level: SandboxLevel, start_probe: StartProbe) -> None:
    engine = start_probe().engine
    (record,) = ProcessRegistry().records()
    assert engine.sandbox == record.sandbox == level.name


def test_search_path_holds_only_what_can_be_started(
    level: SandboxLevel, start_probe: StartProbe, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder = tmp_path / "tools"
    folder.mkdir()
    (folder / "key").write_text("secret")
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin")
    probe = start_probe(model_dir=folder)
    assert str(folder) in probe.engine.client().server_info()["env"]["PATH"].split(":")
    empty = tmp_path / "empty"
    empty.mkdir()
    path = start_probe(model_dir=empty).engine.client().server_info()["env"]["PATH"]
    assert str(folder) not in path.split(":") and "/usr/bin" in path.split(":")


def test_more_can_be_made_readable(
    level: SandboxLevel, start_probe: StartProbe, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    more, empty = tmp_path / "more", tmp_path / "empty"
    for folder in (more, empty):
        folder.mkdir()
    (more / "file").write_text("x")
    monkeypatch.setenv("SPECFARM_SANDBOX_READ", str(more))
    probe = start_probe(model_dir=empty)
    assert probe.attempt("read_file", path=str(more / "file"))[0]


def test_linked_weights_can_be_read(
    level: SandboxLevel, start_probe: StartProbe, tmp_path: Path
) -> None:
    """As in the Hugging Face cache: snapshots/REVISION/model.safetensors -> ../../blobs/HASH."""
    blob = tmp_path / "blobs" / "abc"
    snapshot = tmp_path / "snapshots" / "main"
    for folder in (blob.parent, snapshot):
        folder.mkdir(parents=True)
    blob.write_text("weights")
    blob.with_name("other").write_text("another model's")
    (snapshot / "model.safetensors").symlink_to("../../blobs/abc")
    probe = start_probe(model_dir=snapshot)
    assert probe.attempt("read_file", path=str(snapshot / "model.safetensors"))[0]
    others = probe.attempt("read_file", path=str(blob.with_name("other")))
    assert others[0] is ("file system" in level.not_enforced)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a file away")
def test_weights_of_another_user_are_named(
    level: SandboxLevel, start_probe: StartProbe, tmp_path: Path
) -> None:
    weights = tmp_path / "model" / "model.safetensors"
    weights.parent.mkdir()
    weights.write_text("x")
    weights.chmod(0o600)
    os.chown(weights, 12345, 12345)
    with pytest.raises(EngineCrashed, match=r"cannot read .*model\.safetensors: Permission denied"):
        start_probe(model_dir=weights.parent)
    assert ProcessRegistry().records() == []


def test_an_engine_of_several_processes_reaches_its_own_ports(
    level: SandboxLevel,
    start_probe: StartProbe,
    monkeypatch: pytest.MonkeyPatch,
    listener: int,
) -> None:
    own = fresh_port("127.0.0.1")
    monkeypatch.setattr(ManyProcesses, "ports", (own,))
    probe = start_probe("ManyProcesses")
    assert probe.attempt("talk_to_itself", port=own) == (True, None)
    assert probe.attempt("reduce_among_one", port=own) == (True, 4)
    if level.landlock_abi >= 4:
        assert not probe.attempt("connect", port=listener)[0]
