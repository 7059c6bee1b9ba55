"""Reading an engine's JSON without trusting it: every field is checked, and the path is named."""

from __future__ import annotations

import json
import math
from typing import Any, NoReturn

from engines.errors import EngineProtocolError

MAX_TOKEN_ID = 2**31


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def parse_object(body: bytes, what: str) -> dict[str, Any]:
    """A JSON object; NaN and Infinity are refused."""
    try:
        data = json.loads(body, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise EngineProtocolError(f"{what}: not JSON ({error}): {body[:120]!r}") from None
    if not isinstance(data, dict):
        raise EngineProtocolError(f"{what}: not an object: {body[:120]!r}")
    return data


def table(data: dict[str, Any], key: str, what: str) -> dict[str, Any]:
    value = data.get(key)
    if not isinstance(value, dict):
        raise EngineProtocolError(f"{what}: {key} is missing or not an object: {value!r:.120}")
    return value


def rows(data: dict[str, Any], key: str, what: str) -> list[Any]:
    value = data.get(key)
    if not isinstance(value, list):
        raise EngineProtocolError(f"{what}: {key} is missing or not a list: {value!r:.120}")
    return value


def token_id(value: object, what: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < MAX_TOKEN_ID:
        raise EngineProtocolError(f"{what}: not a token id: {value!r:.120}")
    return value


def token_ids(data: dict[str, Any], key: str, what: str) -> tuple[int, ...]:
    return tuple(token_id(value, f"{what}: {key}") for value in rows(data, key, what))


def count(data: dict[str, Any], key: str, what: str) -> int:
    value = data.get(key)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise EngineProtocolError(f"{what}: {key} is missing or not a count: {value!r:.120}")
    return value


def finite(value: object, what: str) -> float:
    """A finite number: a NaN must never reach a comparison."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise EngineProtocolError(f"{what}: not a finite number: {value!r:.120}")
    return float(value)


def printable(value: object, limit: int = 400) -> str:
    """An engine's words, safe to print, log and store: at most `limit` characters, no control
    characters (a terminal would obey them), no lone surrogates (nothing can encode them)."""
    return "".join(c if c.isprintable() else " " for c in str(value)[:limit])


def counts(data: dict[str, Any], key: str, what: str) -> tuple[int, ...] | None:
    """A list of counts where the engine states one, else None."""
    if data.get(key) is None:
        return None
    values = rows(data, key, what)
    return tuple(count({key: value}, key, what) for value in values)
