"""An engine that attempts things, under each level that this machine has."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engines.engine_process import EngineProcess
from engines.launcher import launch
from engines.process_registry import ProcessRegistry
from engines.registry import register_engine
from engines.resolve import import_stock, store_for
from engines.sandbox.level import NAMES, SandboxLevel, active_level, facilities
from settings.schema import Setting
from tests.engines.conftest import FAKE


def probe_setting(driver: str = "ProbeDriver") -> Setting:
    name = f"probe-{driver.lower()}"
    register_engine(name, f"tests.engines.sandbox.probe_driver:{driver}")
    return Setting.model_validate({**FAKE, "engine": {**FAKE["engine"], "name": name}})  # type: ignore[dict-item]


class Probe:
    """A launched probe engine."""

    def __init__(self, engine: EngineProcess) -> None:
        self.engine = engine

    def attempt(self, name: str, **arguments: object) -> tuple[bool, Any]:
        """Whether it succeeded, and its result or the error in words."""
        answer = self.engine.client().post("/attempt", {"name": name, "arguments": arguments})
        return answer["done"], answer.get("result", answer.get("stopped_by"))


@pytest.fixture(scope="module", params=(*NAMES, "bubblewrap without landlock"))
def level(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SandboxLevel]:
    """A level this machine has, in force for the module's launches; a data folder of its own."""
    found = facilities()
    name = request.param.split()[0]
    if name == "bubblewrap" and not found.bubblewrap:
        pytest.skip("no bwrap that works here (apt-get install bubblewrap)")
    if name == "landlock" and not found.landlock_abi:
        pytest.skip("no Landlock in this kernel, or one before ABI 2")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPECFARM_SANDBOX", name)
        if name != request.param:
            less = replace(found, landlock_abi=0)
            patch.setattr("engines.sandbox.level.facilities", lambda: less)
        patch.setenv("SPECFARM_DATA", str(tmp_path_factory.mktemp("data")))
        yield active_level()


StartProbe = Callable[..., Probe]


@pytest.fixture
def start_probe(level: SandboxLevel, tmp_path: Path) -> Iterator[StartProbe]:
    """start_probe(driver, model_dir) -> Probe; all are stopped at the end."""
    with ExitStack() as stack:

        def start(driver: str = "ProbeDriver", model_dir: Path = tmp_path) -> Probe:
            return Probe(stack.enter_context(launched(driver, model_dir)))

        yield start
    assert ProcessRegistry().records() == []


def launched(driver: str, model_dir: Path) -> EngineProcess:
    setting = probe_setting(driver)
    store = store_for(setting)
    tree = import_stock(setting, store)
    return launch(setting, "stock", store.checkout(tree.commit), tree.tree_hash, model_dir)


@pytest.fixture(scope="module")
def probes(
    level: SandboxLevel, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Probe, Probe]]:
    """Two engines side by side, for what changes nothing."""
    folder = tmp_path_factory.mktemp("model")
    with launched("ProbeDriver", folder) as first, launched("ProbeDriver", folder) as second:
        yield Probe(first), Probe(second)


@pytest.fixture
def listener() -> Iterator[int]:
    """A port of the farm's that listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]
