"""Names of engines and the drivers behind them; a driver's module is imported at first use."""

from __future__ import annotations

from importlib import import_module
from typing import cast

from engines.errors import EngineError
from engines.protocol import EngineDriver
from settings.name_hint import name_hint

_DRIVERS: dict[str, str] = {
    "native": "engines.native_driver:NativeDriver",
    "sglang": "engines.sglang_driver:SglangDriver",
    "transformers": "engines.reference_driver:TransformersDriver",
}


def register_engine(name: str, target: str) -> None:
    """Add (or replace) an engine: `target` is `module:Class`, called without arguments."""
    _DRIVERS[name] = target


def engine_driver(name: str) -> EngineDriver:
    """The driver of `engine.name`.

    Raises:
        EngineError: no such engine; names the nearest known one and lists all.
    """
    try:
        module, attribute = _DRIVERS[name].split(":")
    except KeyError:
        raise EngineError(
            f"engine.name = {name!r} is not known", name_hint(name, _DRIVERS)
        ) from None
    return cast(EngineDriver, getattr(import_module(module), attribute)())
