"""Which tree an arm runs, promoted folders, and the serve and stop scripts' logic."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from engines import serve
from engines.errors import EngineError, PatchConflict
from engines.final_folder import read_lock
from engines.process_registry import ProcessRegistry
from engines.registry import engine_driver
from engines.resolve import final_folder, import_stock, resolve_arm
from engines.stop import stop_port
from engines.tree_store import Tree, TreeStore, verify_checkout
from settings.schema import Arm, Setting

from .conftest import Launch
from .fakes.final_writer import write_final

Edit = Callable[[Path], object]
TABLE = b"".join(b"%d\t%d\n" % (n, n * n) for n in range(256))


@pytest.fixture
def promoted(fake_setting: Setting, store: TreeStore, data_folder: Path) -> tuple[Path, Tree]:
    stock = import_stock(fake_setting, store)
    one = store.commit_knobs(stock.commit, {"draft.k": 8}, "Longer block\n\nwith a body")
    final = store.commit_files(one.commit, {"table.tsv": TABLE}, "Add a table")
    folder = data_folder / "work" / "final" / "fake"
    write_final(folder, store, stock, final, status="certified", hardware="cpu")
    return folder, final


def test_an_unknown_engine_lists_the_known_ones() -> None:
    with pytest.raises(EngineError, match=r"'nope' is not known.*native.*transformers"):
        engine_driver("nope")


def test_stock_and_ar_are_the_same_tree(fake_setting: Setting, store: TreeStore) -> None:
    said: list[str] = []
    stock = resolve_arm(fake_setting, "stock", store=store, say=said.append)
    assert resolve_arm(fake_setting, "ar").tree_hash == stock.tree_hash
    assert verify_checkout(stock.path) == stock.tree_hash and said == [stock.origin]
    with pytest.raises(EngineError, match="candidate"):
        resolve_arm(fake_setting, "candidate")


def test_final_is_rebuilt_in_an_empty_store(
    fake_setting: Setting, promoted: tuple[Path, Tree], data_folder: Path
) -> None:
    folder, final = promoted
    assert len(list((folder / "patches").iterdir())) == 2
    shutil.rmtree(data_folder / "work" / "trees")
    tree = resolve_arm(fake_setting, "final")
    assert (tree.tree_hash, tree.commit) == (final.tree_hash, final.commit)
    assert str(folder) in tree.origin
    assert (tree.path / "table.tsv").read_bytes() == TABLE


def edit_lock(field: str, value: str) -> Edit:
    def edit(folder: Path) -> None:
        old = getattr(read_lock(folder), field)
        path = folder / "engine.lock"
        path.write_text(path.read_text().replace(old, value))

    return edit


def certificate(**fields: object) -> Edit:
    return lambda folder: (folder / "certificate.json").write_text(json.dumps(fields))


def drop_last_patch(folder: Path) -> None:
    sorted((folder / "patches").iterdir())[-1].unlink()


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (edit_lock("final_tree", "1" * 40), "final_tree is 1111"),
        (edit_lock("stock_tree", "1" * 40), "stock_tree is 1111"),
        (edit_lock("stock_commit", "1" * 40), "stock_commit 1111"),
        (edit_lock("final_commit", "x"), "final_commit = 'x' is not a 40-hex"),
        (drop_last_patch, "final_tree"),
        (lambda f: (f / "stock.bundle").write_bytes(b"broken"), "bundle cannot be read"),
        (lambda f: (f / "stock.bundle").unlink(), "stock.bundle"),
        (certificate(status="revoked", hardware="cpu"), "status is revoked"),
        (certificate(status="replayed", hardware="cpu"), "status is replayed"),
        (certificate(hardware="cpu"), "status is missing"),
        (certificate(status="certified", hardware="h100"), "hardware is h100, this is cpu"),
        (lambda f: (f / "certificate.json").unlink(), "certificate.json cannot be read"),
    ],
)
def test_a_changed_final_is_refused(
    fake_setting: Setting, promoted: tuple[Path, Tree], edit: Edit, message: str
) -> None:
    edit(promoted[0])
    with pytest.raises(EngineError, match=message):
        resolve_arm(fake_setting, "final")


@pytest.mark.parametrize("name", ["engine.lock", "stock.bundle", "patches/0002-x.patch"])
def test_a_file_that_differs_from_its_certificate_is_refused(
    fake_setting: Setting, promoted: tuple[Path, Tree], name: str
) -> None:
    """The store may hold the trees already: what the folder says must still be what was signed."""
    folder, final = promoted
    path = folder / name
    good = hashlib.sha256(path.read_bytes()).hexdigest()
    certificate(status="certified", hardware="cpu", hashes={"files": {name: good}})(folder)
    assert resolve_arm(fake_setting, "final").tree_hash == final.tree_hash
    wrong = good.translate(str.maketrans("0123456789abcdef", "123456789abcdef0"))
    certificate(status="certified", hardware="cpu", hashes={"files": {name: wrong}})(folder)
    with pytest.raises(EngineError, match=f"{path}: sha256 differs"):
        resolve_arm(fake_setting, "final")


def test_an_arm_may_not_set_what_the_setting_owns(fake_setting: Setting) -> None:
    for flag in ("--port=1", "--dtype", "--model-dir"):
        arms = {**fake_setting.engine.arms, "stock": Arm(args=(flag,))}
        engine = fake_setting.engine.model_copy(update={"arms": arms})
        setting = fake_setting.model_copy(update={"engine": engine})
        with pytest.raises(EngineError, match=r"engine\.arms\.stock\.args may not set --"):
            engine_driver("native").command(
                setting, "stock", Path("t"), Path("m"), "127.0.0.1", 1, "0" * 40
            )


def test_a_patch_that_no_longer_applies(fake_setting: Setting, promoted: tuple[Path, Tree]) -> None:
    patch = promoted[0] / "patches" / "0001-x.patch"
    patch.write_text(patch.read_text().replace("-k = 4", "-k = 5"))
    with pytest.raises(PatchConflict, match=r"engine\.toml"):
        resolve_arm(fake_setting, "final")


def test_other_hardware_only_when_told(fake_setting: Setting, promoted: tuple[Path, Tree]) -> None:
    certificate(status="certified", hardware="h100")(promoted[0])
    tree = resolve_arm(fake_setting, "final", allow_other_hardware=True)
    assert tree.tree_hash == promoted[1].tree_hash


def test_the_last_searchs_winner_comes_before_the_checkouts(
    fake_setting: Setting,
    promoted: tuple[Path, Tree],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mine = tmp_path / "checkout" / "settings" / "fake" / "final"
    shutil.copytree(promoted[0], mine)
    monkeypatch.setattr("engines.resolve.checkout_root", lambda: tmp_path / "checkout")
    assert final_folder(fake_setting) == promoted[0]
    shutil.rmtree(promoted[0])
    assert final_folder(fake_setting) == mine
    shutil.rmtree(mine)
    with pytest.raises(EngineError, match="specfarm search fake"):
        final_folder(fake_setting)


def test_devices() -> None:
    assert serve.present_hardware("cpu") == "cpu"
    with pytest.raises(EngineError, match="neither cpu nor"):
        serve.present_hardware("gpu")


SERVE = """
import sys
from engines import serve
from engines.registry import register_engine
from settings.schema import Setting
from tests.engines.conftest import FAKE
from pathlib import Path
register_engine("fake", "tests.engines.fakes.driver:FakeDriver")
serve.load_setting = lambda name: Setting.model_validate(FAKE)
serve.ensure_target = lambda setting: Path(".")
sys.exit(serve.main(sys.argv[1:]))
"""


def serving(*args: str) -> subprocess.Popen[str]:
    root = Path(serve.__file__).parent.parent
    command = [sys.executable, "-c", SERVE, *args]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=root
    )


@pytest.mark.parametrize("how", ["stop", "interrupt", "kill"])
def test_serve_in_the_foreground_until_stopped(
    promoted: tuple[Path, Tree], how: str, free_port: int
) -> None:
    with serving("fake", "final", "cpu", str(free_port)) as server:
        assert server.stdout is not None
        lines = []
        while not lines or not lines[-1].startswith("stop:"):
            lines.append(server.stdout.readline())
            assert lines[-1], f"serve ended: {lines}"
        text = "".join(lines)
        assert promoted[1].tree_hash in text and str(promoted[0]) in text
        assert f"curl -N http://127.0.0.1:{free_port}/v1/chat/completions" in text
        with urllib.request.urlopen(f"http://127.0.0.1:{free_port}/health") as reply:
            assert reply.status == 200
        (record,) = ProcessRegistry().records()
        engine = psutil.Process(record.pid)
        # A second server on the port is refused, and the first goes on.
        with serving("fake", "stock", "cpu", str(free_port)) as second:
            output, _ = second.communicate(timeout=30)
            assert second.returncode == 2 and f"port {free_port}" in output
        assert server.poll() is None
        if how == "stop":
            assert f"fake final (pid {engine.pid}) on port {free_port}" in stop_port(free_port)
        else:
            server.send_signal(signal.SIGINT if how == "interrupt" else signal.SIGKILL)
        code = server.wait(timeout=20)
        assert code == (-signal.SIGKILL if how == "kill" else 0)
        psutil.wait_procs([engine], timeout=5)
        assert not engine.is_running()
    ProcessRegistry().reap_leftovers()
    assert ProcessRegistry().records() == []


def test_serve_takes_a_revoked_final_only_when_told(
    promoted: tuple[Path, Tree], free_port: int
) -> None:
    facts = {"reason": "x0.9 [0.8, 0.95]", "date": "2026-12-01T00:00:00Z"}
    certificate(status="revoked", hardware="cpu", revoked=facts)(promoted[0])
    with serving("fake", "final", "cpu", str(free_port)) as refused:
        output, _ = refused.communicate(timeout=30)
    assert refused.returncode == 2
    assert "status is revoked" in output and "x0.9 [0.8, 0.95]" in output and "--revoked" in output
    with serving("fake", "final", "cpu", str(free_port), "--revoked") as told:
        assert told.stdout is not None
        first = told.stdout.readline()
        assert promoted[1].tree_hash in first and ", revoked" in first
        told.send_signal(signal.SIGTERM)
        assert told.wait(timeout=20) == 0


def test_stop_ends_only_what_serve_started(launch_fake: Launch) -> None:
    engine = launch_fake()
    with pytest.raises(EngineError, match=f"running search .pid {os.getpid()}"):
        stop_port(engine.port)
    assert engine.is_running()
    with pytest.raises(EngineError, match="no engine of ours"):
        stop_port(engine.port + 1)
