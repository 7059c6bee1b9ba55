"""Reading a JSON object field by field; what is wrong is a BadRequest that names the field."""

from __future__ import annotations

import json
import reprlib
from collections.abc import Mapping
from typing import Any

from native_engine.errors import BadRequest

_SHOWN_CHARACTERS = 80


def shown(value: Any) -> str:
    """`value` in a message: short, however long it is or deep it is nested."""
    if isinstance(value, str):
        value = value[:_SHOWN_CHARACTERS]
    if value is None or isinstance(value, str | int | float):
        return json.dumps(value)[:_SHOWN_CHARACTERS]
    return reprlib.repr(value)[:_SHOWN_CHARACTERS]


class Fields:
    """Typed reads of one object. A null counts as absent; `where` prefixes names in messages."""

    def __init__(self, raw: Mapping[str, Any], where: str = "") -> None:
        self.raw = raw
        self._where = where

    def fail(self, name: str, problem: str) -> BadRequest:
        return BadRequest(self._where + name, problem)

    def integer(self, name: str, default: int, low: int, high: int) -> int:
        value = self.raw.get(name)
        if value is None:
            return default
        if type(value) is not int or not low <= value <= high:
            raise self.fail(name, f"an integer from {low} to {high} is needed, got {shown(value)}")
        return value

    def optional_integer(self, name: str, low: int, high: int) -> int | None:
        return None if self.raw.get(name) is None else self.integer(name, low, low, high)

    def number(self, name: str, default: float, above: float, high: float) -> float:
        """Greater than `above`, at most `high`."""
        value = self.raw.get(name)
        if value is None:
            return default
        if type(value) not in (int, float) or not above < value <= high:
            raise self.fail(name, f"a number above {above} to {high} is needed, got {shown(value)}")
        return float(value)

    def flag(self, name: str, default: bool = False) -> bool:
        value = self.raw.get(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.fail(name, f"true or false is needed, got {shown(value)}")
        return value

    def text(self, name: str, default: str = "") -> str:
        """Raises BadRequest also for a lone surrogate: no reply could repeat it."""
        value = self.raw.get(name)
        if value is None:
            return default
        if not isinstance(value, str):
            raise self.fail(name, f"a string is needed, got {shown(value)}")
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise self.fail(name, f"not valid Unicode: {error}") from error
        return value

    def table(self, name: str) -> Fields:
        value = self.raw.get(name)
        if value is None:
            value = {}
        if not isinstance(value, dict):
            raise self.fail(name, f"an object is needed, got {shown(value)}")
        return Fields(value, f"{self._where}{name}.")

    def texts(self, name: str) -> tuple[str, ...]:
        """A string or a list of non-empty strings."""
        value = self.raw.get(name)
        items = [] if value is None else [value] if isinstance(value, str) else value
        if not isinstance(items, list) or not all(isinstance(s, str) and s for s in items):
            raise self.fail(name, "a non-empty string or a list of them is needed")
        return tuple(items)

    def ids(self, name: str, vocab_size: int) -> tuple[int, ...]:
        value = self.raw.get(name)
        return () if value is None else self.check_ids(name, value, vocab_size)

    def check_ids(self, name: str, value: Any, vocab_size: int) -> tuple[int, ...]:
        if not isinstance(value, list):
            raise self.fail(name, "a list of token ids is needed")
        for i, token in enumerate(value):
            if type(token) is not int or not 0 <= token < vocab_size:
                raise self.fail(
                    f"{name}[{i}]",
                    f"a token id from 0 to {vocab_size - 1} is needed, got {shown(token)}",
                )
        return tuple(value)
