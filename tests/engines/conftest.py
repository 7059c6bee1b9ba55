"""A data folder of its own, a setting for the fake engine, and a way to launch one behaviour."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from engines.engine_process import EngineProcess, fresh_port
from engines.launcher import launch
from engines.process_registry import ProcessRegistry
from engines.registry import register_engine
from engines.resolve import import_stock, store_for
from engines.tree_store import TreeStore
from settings.schema import ArmName, Setting

FAKE = {
    "schema_version": 1,
    "name": "fake",
    "summary": "no model at all",
    "target": {
        "name": "fake-model",
        "checkpoint": {"source": "random", "licence": "Apache-2.0"},
        "weights_dtype": "fp32",
        "kv_dtype": "fp32",
        "lm_head_dtype": "fp32",
    },
    "drafter": {"kind": "ngram"},
    "hardware": {"gpu": "cpu", "threads": 3, "memory_gb": 1.0},
    "serving": {"concurrency": 1, "max_running_requests": 1, "max_total_tokens": 256},
    "decoding": {"max_new_tokens": 16},
    "prompts": {
        "search": [{"set": "gsm8k", "count": 1}],
        "heldout": [{"set": "gsm8k", "count": 1}],
    },
    "engine": {
        "name": "fake",
        "arms": {"ar": {"args": ["--speculation", "off"]}, "stock": {"args": ["--x", "1"]}},
        "startup_deadline_s": 20.0,
        "request_deadline_s": 10.0,
    },
    "measurement": {"mode": "slices", "estimator": "quiet_time"},
}


@pytest.fixture
def data_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SPECFARM_DATA", str(tmp_path / "data"))
    return tmp_path / "data"


@pytest.fixture
def free_port() -> int:
    return fresh_port("127.0.0.1")


@pytest.fixture
def fake_setting(data_folder: Path) -> Setting:
    register_engine("fake", "tests.engines.fakes.driver:FakeDriver")
    return Setting.model_validate(FAKE)


@pytest.fixture
def store(fake_setting: Setting) -> TreeStore:
    return store_for(fake_setting)


Launch = Callable[..., EngineProcess]


@pytest.fixture
def launch_fake(fake_setting: Setting, store: TreeStore, tmp_path: Path) -> Iterator[Launch]:
    """launch_fake(behaviour, **knobs) -> EngineProcess; everything is stopped at the end."""
    started: list[EngineProcess] = []

    def start(
        behaviour: str = "healthy",
        *,
        setting: Setting = fake_setting,
        arm: ArmName = "candidate",
        launch_options: dict[str, object] | None = None,
        **knobs: bool | int | float | str,
    ) -> EngineProcess:
        stock = import_stock(setting, store)
        tree = store.commit_knobs(stock.commit, {"behaviour": behaviour, **knobs})
        path = store.checkout(tree.commit)
        engine = launch(setting, arm, path, tree.tree_hash, tmp_path, **(launch_options or {}))
        started.append(engine)
        return engine

    yield start
    for engine in started:
        engine.stop(grace_s=0.2)
    assert ProcessRegistry().records() == []
