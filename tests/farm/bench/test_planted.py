"""The planted slow-down does what it says, and still fits the native engine."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from engines.tree_store import Tree
from farm.bench.errors import MeasurementError
from farm.bench.planted import _PLANT, DECODE_FILE, plant_slowdown
from settings.paths import checkout_root


class FakeStore:
    def __init__(self, source: bytes) -> None:
        self.source = source

    def read_file(self, commit: str, path: str) -> bytes:
        assert path == DECODE_FILE
        return self.source

    def commit_files(self, base: str, files: dict[str, bytes], message: str) -> Tree:
        self.written = files[DECODE_FILE].decode()
        return Tree("new", "new")


def test_the_native_decode_loop_can_be_slowed() -> None:
    store = FakeStore((checkout_root() / "engines" / "native" / DECODE_FILE).read_bytes())
    base = Tree("old", "old")
    assert plant_slowdown(store, base, 0.0) is base  # type: ignore[arg-type]
    assert plant_slowdown(store, base, 0.05).commit == "new"  # type: ignore[arg-type]
    compile(store.written, DECODE_FILE, "exec")
    with pytest.raises(MeasurementError, match="no decode step"):
        plant_slowdown(FakeStore(b"x = 1"), base, 0.05)  # type: ignore[arg-type]


def test_a_step_takes_exactly_the_share_longer() -> None:
    clock = SimpleNamespace(now=0.0)

    def perf_counter() -> float:
        clock.now += 0.001  # each look at the clock costs a millisecond
        return float(clock.now)

    class Decoder:
        def _step(self, context: list[int], budget: int) -> str:
            clock.now += 10.0
            return f"{context} {budget}"

    names = {"Decoder": Decoder, "perf_counter": perf_counter, "Step": str}
    exec(_PLANT.format(share=0.1), names)
    assert Decoder()._step([1], 2) == "[1] 2"
    assert clock.now == pytest.approx(11.0, abs=0.02)
