"""Which parameters a request may name (parameters.toml). None is ignored in silence: a client that
asks for sampling and gets greedy text would believe that it was sampled.

A null counts as absent."""

from __future__ import annotations

import difflib
import tomllib
from pathlib import Path
from typing import Any

from native_engine.server.fields import Fields, shown

_TABLES = tomllib.loads((Path(__file__).parent / "parameters.toml").read_text())
_WHY: dict[str, str] = {name: why for why, names in _TABLES["why"].items() for name in names}
_GREEDY = "decoding is greedy"
_UNSERVED = "this engine does not serve it"
_NAME_CHARACTERS = 80
_SAMPLED = frozenset({"temperature", "top_p", "top_k"})


class Parameters:
    """All parameters of one JSON object, table `name`."""

    def __init__(self, name: str) -> None:
        table = _TABLES[name]
        self._read = frozenset(table["read"])
        self._unread = self._read.union(table.get("idle", ()))
        self._neutral: dict[str, list[Any]] = {}
        for part in (*table.get("also", ()), name):
            self._neutral |= _TABLES[part]["neutral"]

    def check(self, fields: Fields, sampled: bool = False) -> None:
        """Raises BadRequest naming an unknown parameter and the nearest known one, or a known one
        that asks for what this engine does not do. `sampled`: temperature, top_p, top_k and a seed
        are served."""
        for name, value in fields.raw.items():
            if name in self._unread or (sampled and name in _SAMPLED):
                continue
            if name not in self._neutral:
                raise fields.fail(*self._unknown(name, sampled))
            allowed = self._neutral[name]
            if value is not None and not any(_same(value, one) for one in allowed):
                served = " or ".join(map(shown, allowed))
                only = f"only {served} is accepted" if served else "leave it out"
                why = _WHY.get(name, _UNSERVED)
                why = _UNSERVED if sampled and why == _GREEDY else why
                raise fields.fail(name, f"{why}: {only}, got {shown(value)}")

    def _unknown(self, name: str, sampled: bool) -> tuple[str, str]:
        # A lone surrogate could not be encoded into the reply.
        safe = name[:_NAME_CHARACTERS].encode("ascii", "backslashreplace").decode()
        near = difflib.get_close_matches(safe, sorted(self._unread | self._neutral.keys()), n=1)
        if near:
            return safe, f"unknown parameter; did you mean {near[0]!r}?"
        read = self._read | _SAMPLED if sampled else self._read
        return safe, f"unknown parameter; known: {', '.join(sorted(read))}"


def _same(value: Any, allowed: Any) -> bool:
    # 1 == True in Python; in JSON they are different values.
    return bool(value == allowed) and isinstance(value, bool) == isinstance(allowed, bool)


GENERATE, SAMPLING = Parameters("generate"), Parameters("sampling")
COMPLETION, CHAT = Parameters("completion"), Parameters("chat")
STREAM_OPTIONS, MESSAGE = Parameters("stream_options"), Parameters("message")
