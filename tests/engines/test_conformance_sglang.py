"""A real SGLang server on the CPU, with the tiny random model: minutes, most of them imports."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest

from engines.answers import GenerationRequest
from engines.conformance import EngineConformance
from engines.errors import EngineError
from engines.http_client import EngineClient
from engines.launcher import launch
from engines.registry import engine_driver
from engines.resolve import import_stock, store_for
from engines.sglang_driver import PYTHON_VARIABLE, sglang_python
from settings.baseline import as_baseline
from settings.loading import list_settings, load_setting
from settings.schema import Arm, ArmName, Setting
from settings.weights import ensure_target

ARMS: tuple[ArmName, ...] = ("ar", "stock")
SETTINGS = Path(__file__).parent.parent / "data" / "settings"


def missing() -> str:
    """Why there is no SGLang here; empty where there is."""
    try:
        sglang_python("cpu")
    except EngineError as error:
        return str(error)
    return ""


@pytest.mark.slow
@pytest.mark.timeout(1500)
@pytest.mark.skipif(bool(missing()), reason=missing())
class TestSglangFp32(EngineConformance):
    setting_name: ClassVar[str] = str(SETTINGS / "tiny-fp32" / "setting.toml")
    engine_name: ClassVar[str] = "sglang"
    arm: ClassVar[ArmName] = "ar"
    changes: ClassVar[Mapping[str, Any]] = {
        "arms": {"ar": Arm(), "stock": Arm()},
        "startup_deadline_s": 900.0,
        "request_deadline_s": 240.0,
    }
    near_tie: ClassVar[float] = 1e-3
    # Its scheduler indexes the embedding with them and ends.
    fatal: ClassVar[frozenset[str]] = frozenset({"negative_id", "id_beyond_vocabulary"})

    def test_it_chooses_the_native_engines_tokens(
        self, client: EngineClient, setting: Setting
    ) -> None:
        native = load_setting(self.setting_name)
        store = store_for(native)
        tree = import_stock(native, store)
        path = store.checkout(tree.commit)
        requests = [
            GenerationRequest("r", tuple(range(3 + i, 23 + 2 * i)), 48, ignore_eos=True)
            for i in range(4)
        ]
        with launch(native, "stock", path, tree.tree_hash, ensure_target(native)) as engine:
            expected = [engine.client().generate(request).output_ids for request in requests]
        assert [client.generate(request).output_ids for request in requests] == expected


@pytest.mark.slow
@pytest.mark.skipif(bool(missing()), reason=missing())
def test_every_baselines_flags_are_sglangs(monkeypatch: pytest.MonkeyPatch) -> None:
    python = sglang_python("cpu")
    monkeypatch.setenv(PYTHON_VARIABLE, str(python))
    monkeypatch.setattr("engines.sglang_driver.ensure_drafter", lambda _: Path("/drafter"))
    driver = engine_driver("sglang")
    words = []
    for name in list_settings():
        setting = load_setting(name)
        if setting.baseline is not None:
            served = as_baseline(setting)
            for arm in ARMS:
                command = driver.command(served, arm, Path("t"), Path("m"), "127.0.0.1", 9, "h")
                words.append(command[command.index("--tree-hash") + 2 :])
    script = (
        "import argparse, json, sys; from sglang.srt.server_args import ServerArgs\n"
        "parser = argparse.ArgumentParser(allow_abbrev=False); ServerArgs.add_cli_args(parser)\n"
        "print(len([parser.parse_args(w) for w in json.load(sys.stdin)]))"
    )
    environment = {"PYTHONPATH": str(driver.stock_source()), "PATH": os.environ["PATH"]}
    done = subprocess.run(
        [python, "-c", f"from sglang_engine import cpu_shims; cpu_shims.install()\n{script}"],
        input=json.dumps(words),
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert int(done.stdout.split()[-1]) == len(words) == 28
