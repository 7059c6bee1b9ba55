"""Names of explorers -> factories; adding one is one file and one line here."""

from __future__ import annotations

from collections.abc import Callable

from explorers.memory_explorer import MemoryExplorer
from explorers.protocol import Explorer
from settings.errors import SpecfarmError

_FACTORIES: dict[str, Callable[[], Explorer]] = {"memory": MemoryExplorer}


def make_explorer(name: str) -> Explorer:
    """The explorer called `name`.

    Raises:
        SpecfarmError: unknown name; lists the known ones.
    """
    try:
        return _FACTORIES[name]()
    except KeyError:
        raise SpecfarmError(
            f"--explorers: {name!r} is not an explorer", f"Known: {', '.join(_FACTORIES)}"
        ) from None
