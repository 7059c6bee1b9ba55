"""The bench command from label to result file, on a fake engine."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from engines.proc_files import proc_stat
from engines.process_registry import ProcessRegistry, new_record
from farm.bench import cli
from farm.bench.result_file import read_result
from tests.farm.bench.fakes import FakeEngine, request

SETTING = "cpu_c1_smollm2-135m_ngram"


@pytest.fixture
def _fake(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeEngine:
    engine = FakeEngine("stock", per_step=2)

    @contextmanager
    def launch(setting, arm, *_, **__) -> Iterator[FakeEngine]:  # type: ignore[no-untyped-def]
        assert (setting.name, arm) == (SETTING, "stock")
        yield engine
        engine.stop()

    tree = SimpleNamespace(path=tmp_path, tree_hash="t" * 40)
    monkeypatch.setenv("SPECFARM_DATA", str(tmp_path))
    monkeypatch.setenv("SPECFARM_TIMING_LOCK", str(tmp_path / "lock"))
    monkeypatch.setattr(cli, "launch", launch)
    monkeypatch.setattr(cli, "resolve_arm", lambda *_, **__: tree)
    monkeypatch.setattr(cli, "ensure_target", lambda *_: tmp_path)
    monkeypatch.setattr(cli, "search_prompts", lambda *_: [])
    monkeypatch.setattr(cli, "as_requests", lambda *_: tuple(request(f"p{i}", 7) for i in "abc"))
    return engine


def test_bench_writes_what_was_timed(_fake: FakeEngine, tmp_path: Path) -> None:
    assert cli.main([SETTING, "stock-1", "cpu"]) == 0
    result = read_result(tmp_path / "work" / "bench" / "stock-1.json")
    assert (result.arm, result.setting, result.tree_hash) == ("stock", SETTING, "t" * 40)
    assert [a.output_ids for a in result.recording.answers("stock")] == [tuple(range(100, 107))] * 3
    assert result.summary["accept_length"] == 2.0
    assert result.warm["rounds"] >= 3
    assert _fake.stopped


def test_bad_labels_and_settings_exit_with_2(
    _fake: FakeEngine,
    capsys: pytest.CaptureFixture,  # type: ignore[type-arg]
) -> None:
    assert cli.main([SETTING, "best-1", "cpu"]) == 2
    assert "names no arm" in capsys.readouterr().err
    assert cli.main(["no_such_setting", "stock-1", "cpu"]) == 2
    assert "no setting is named" in capsys.readouterr().err
    assert cli.main([SETTING, "stock-1", "gpu0"]) == 2
    assert "device 'gpu0' is neither cpu nor a GPU index" in capsys.readouterr().err
    with pytest.raises(SystemExit) as end:
        cli.main([SETTING])
    assert end.value.code == 2
    error = capsys.readouterr().err
    assert "required: label, GPU" in error and error.count("\n") == 1


def test_an_unwritable_result_is_refused_before_anything_is_launched(
    _fake: FakeEngine,
    tmp_path: Path,
    capsys: pytest.CaptureFixture,  # type: ignore[type-arg]
) -> None:
    (tmp_path / "file").touch()
    for out in (tmp_path, tmp_path / "file" / "x.json"):
        assert cli.main([SETTING, "stock-1", "cpu", "--out", str(out)]) == 2
        assert f"--out: {out} cannot be written" in capsys.readouterr().err
    assert not _fake.stopped


def test_engines_of_a_killed_run_are_ended_before_the_timing(
    _fake: FakeEngine,
    capsys: pytest.CaptureFixture,  # type: ignore[type-arg]
) -> None:
    left = subprocess.Popen(["sleep", "600"], start_new_session=True)
    stat = proc_stat(left.pid)
    assert stat is not None
    record = new_record(
        setting=SETTING, arm="stock", tree_hash="t", port=1, purpose="farm", scratch="/nowhere"
    )
    # No process of that pid: the farm that started it is gone.
    orphan = replace(record, owner_pid=2**22 + 7, pid=left.pid, start_time=stat.start_time)
    registry = ProcessRegistry()
    registry.write(orphan)
    try:
        assert cli.main([SETTING, "stock-1", "cpu"]) == 0
        assert left.wait(timeout=10) == -signal.SIGTERM
    finally:
        left.kill()
        left.wait()
    assert f"ended stock (pid {left.pid}) of a killed run" in capsys.readouterr().err
    assert registry.records() == []
