"""Names of explorers -> factories; adding one is one file and one line here."""

from __future__ import annotations

from collections.abc import Callable

from explorers.memory_explorer import MemoryExplorer
from explorers.protocol import Explorer
from settings.errors import SpecfarmError
from settings.name_hint import name_hint

_FACTORIES: dict[str, Callable[[], Explorer]] = {"memory": MemoryExplorer}


def register_explorer(name: str, factory: Callable[[], Explorer]) -> None:
    """Add (or replace) an explorer: `factory` is called once a campaign."""
    _FACTORIES[name] = factory


def make_explorer(name: str) -> Explorer:
    """The explorer called `name`.

    Raises:
        SpecfarmError: unknown name; lists the known ones.
    """
    try:
        factory = _FACTORIES[name]
    except KeyError:
        raise SpecfarmError(
            f"--explorers: {name!r} is not an explorer", name_hint(name, _FACTORIES)
        ) from None
    return factory()
