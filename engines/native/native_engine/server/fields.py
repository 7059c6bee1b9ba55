"""A request's body, bounded in size before it is parsed, and its fields, one by one; what is wrong
is a BadRequest that names the field."""

from __future__ import annotations

import json
import reprlib
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from fastapi import Request

from native_engine.errors import BadRequest, NativeEngineError

T = TypeVar("T")
# 128 prompts of 2,048 ids are 2 MB; the launch flag --max-body-bytes sets another limit.
MAX_BODY_BYTES = 16 * 2**20
_SHOWN_CHARACTERS = 80


class BodyTooLarge(NativeEngineError):
    """The body is longer than this server reads (HTTP 413)."""


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

    def integer(self, name: str, default: T, low: int, high: int) -> int | T:
        needed = f"an integer from {low} to {high}"
        return self._read(name, default, lambda v: type(v) is int and low <= v <= high, needed)

    def number(self, name: str, default: float, above: float, high: float) -> float:
        """Greater than `above`, at most `high`."""

        def right(value: Any) -> bool:
            return type(value) in (int, float) and above < value <= high

        return float(self._read(name, default, right, f"a number above {above} to {high}"))

    def flag(self, name: str) -> bool:
        return self._read(name, False, lambda value: type(value) is bool, "true or false")

    def text(self, name: str) -> str:
        """Raises BadRequest also for a lone surrogate: no reply could repeat it."""
        value = self._read(name, "", lambda value: isinstance(value, str), "a string")
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise self.fail(name, f"not valid Unicode: {error}") from error
        return value

    def table(self, name: str) -> Fields:
        nothing: dict[str, Any] = {}
        value = self._read(name, nothing, lambda value: isinstance(value, dict), "an object")
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
                needed = f"a token id from 0 to {vocab_size - 1} is needed"
                raise self.fail(f"{name}[{i}]", f"{needed}, got {shown(token)}")
        return tuple(value)

    def _read(self, name: str, default: T, right: Callable[[Any], bool], needed: str) -> T:
        value: T | None = self.raw.get(name)
        if value is None:
            return default
        if not right(value):
            raise self.fail(name, f"{needed} is needed, got {shown(value)}")
        return value


async def read_fields(http: Request, limit: int) -> Fields:
    """The body of `http`, a JSON object; of a longer one than `limit` bytes the rest is not kept.

    Raises BodyTooLarge, or BadRequest for what is no JSON object."""
    body = bytearray()
    async for chunk in http.stream():
        body += chunk
        if len(body) > limit:
            raise BodyTooLarge(
                f"body: longer than {limit} bytes; send fewer prompts a request, or start the "
                "server with a larger --max-body-bytes"
            )
    try:
        value = json.loads(bytes(body))
    except RecursionError as error:
        raise BadRequest("body", "nested too deeply") from error
    except ValueError as error:
        raise BadRequest("body", f"not valid JSON: {error}") from error
    if not isinstance(value, dict):
        raise BadRequest("body", "a JSON object is needed")
    return Fields(value)
