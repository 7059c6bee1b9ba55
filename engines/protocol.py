"""What the farm needs to know of a kind of engine: where its stock source lies and how to start it.

A driver is stateless. Adding an engine is one module with such a class and one line in
`engines.registry`; `engines.conformance` is the suite it must pass.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol, runtime_checkable

from engines.knobs import KnobValue
from settings.schema import ArmName, Setting


class EngineDriver(Protocol):
    """Starts one kind of engine from a checked-out tree.

    Attributes:
        name: the registry's name for it (`setting.engine.name`).
        setting_owned_keys: keys that belong to setting.toml and are refused in engine.toml.
    """

    @property
    def name(self) -> str: ...

    @property
    def setting_owned_keys(self) -> frozenset[str]: ...

    def stock_source(self) -> Path:
        """The folder in this checkout that is imported as the stock tree."""
        ...

    def command(
        self,
        setting: Setting,
        arm: ArmName,
        tree: Path,
        model_dir: Path,
        host: str,
        port: int,
        tree_hash: str,
    ) -> tuple[str, ...]:
        """argv that serves `arm` from the checkout `tree` on host:port, in the foreground."""
        ...

    def environment(self, tree: Path, cache_dir: Path) -> dict[str, str]:
        """Variables the engine needs beside the launcher's own (PYTHONPATH, compile caches)."""
        ...


@runtime_checkable
class RowShapes(Protocol):
    """A driver whose engine can be made to read prompts a few rows at a time."""

    def row_shape_knobs(self, rows: int) -> Mapping[str, KnobValue]:
        """engine.toml keys under which a forcing pass computes `rows` rows at once, as a verify
        step does."""
        ...


@runtime_checkable
class StockKnobs(Protocol):
    """A driver whose stock tree is told by engine.toml what a setting's released system does."""

    def stock_knobs(self, setting: Setting) -> Mapping[str, KnobValue]:
        """engine.toml keys of the setting's stock tree; none where it is as in this checkout."""
        ...


def arm_args(setting: Setting, arm: ArmName) -> tuple[str, ...]:
    """The launch arguments of an arm; `final` and `candidate` fall back to stock's, so that a
    candidate is launched exactly as the baseline it is compared with."""
    arms = setting.engine.arms
    if arm in arms:
        return arms[arm].args
    if arm in ("final", "candidate") and "stock" in arms:
        return arms["stock"].args
    return ()
