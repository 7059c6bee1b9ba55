"""Edit engine.toml line by line, so that its comments stay; the result is checked as TOML."""

from __future__ import annotations

import json
import math
import re
import tomllib
from collections.abc import Mapping

from engines.errors import TreeRefused

KnobValue = bool | int | float | str | list["KnobValue"]

_HEADER = re.compile(r"^\s*\[(?P<table>[^\[\]]+)\]\s*(#.*)?$")
_KEY = re.compile(r"^[A-Za-z0-9_-]+$")


def _toml(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float) and math.isfinite(value):
        return repr(value)
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_toml(item) for item in value) + "]"
    raise TreeRefused(f"engine.toml cannot hold {value!r}", "Use a bool, number, string or list")


def _comment(line: str) -> str:
    """The trailing comment of a `key = value` line, with its leading blanks."""
    for match in re.finditer(r"\s*#", line):
        try:
            tomllib.loads(line[: match.start()])
        except tomllib.TOMLDecodeError:
            continue
        return line[match.start() :]
    return ""


def _set_one(lines: list[str], table: str, key: str, value: object) -> None:
    current, table_end = "", 0 if table == "" else None
    for index, line in enumerate(lines):
        header = _HEADER.match(line)
        if header:
            current = header["table"].strip()
        if current == table and line.strip() and not line.lstrip().startswith("#"):
            table_end = index + 1
        if current == table and re.match(rf"\s*{re.escape(key)}\s*=", line):
            lines[index] = f"{key} = {_toml(value)}{_comment(line)}"
            return
    if table_end is None:
        lines += ["", f"[{table}]"]
        table_end = len(lines)
    lines.insert(table_end, f"{key} = {_toml(value)}")


def _assign(document: dict[str, object], path: list[str], value: object) -> None:
    node = document
    for part in path[:-1]:
        child = node.setdefault(part, {})
        if not isinstance(child, dict):
            raise TreeRefused(f"engine.toml: {part} is not a table, cannot set {'.'.join(path)}")
        node = child
    node[path[-1]] = list(value) if isinstance(value, tuple) else value


def edit_engine_toml(text: str, knobs: Mapping[str, KnobValue]) -> str:
    """`text` with every `knobs` entry set; a dotted key (`draft.k`) names a table's key.

    Raises:
        TreeRefused: a key or value that TOML cannot hold, or an engine.toml written in a way that
            a line edit cannot follow (multi-line values, inline or dotted tables).
    """
    try:
        expected = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise TreeRefused(f"engine.toml is not TOML: {error}") from None
    lines = text.splitlines()
    for dotted, value in knobs.items():
        path = dotted.split(".")
        if not all(_KEY.match(part) for part in path):
            raise TreeRefused(f"engine.toml: {dotted!r} is not a key", "Use bare dotted keys")
        _set_one(lines, ".".join(path[:-1]), path[-1], value)
        _assign(expected, path, value)
    edited = "\n".join(lines) + "\n"
    try:
        result = tomllib.loads(edited)
    except tomllib.TOMLDecodeError:
        result = {}
    if result != expected:
        raise TreeRefused(
            f"engine.toml: {', '.join(knobs)} cannot be set line by line",
            "Commit the whole file instead",
        )
    return edited
