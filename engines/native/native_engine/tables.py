"""TOML tables into frozen dataclasses: an unknown key is an error that names the nearest one."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from native_engine.errors import ConfigError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T", bound="DataclassInstance")


def unknown_name(what: str, name: str, known: Iterable[str]) -> ConfigError:
    """The error for a name that is none of `known`."""
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=1)
    hint = f" (did you mean {near[0]!r}?)" if near else ""
    return ConfigError(f"{what}: unknown name {name!r}{hint}; known: {', '.join(names)}")


def read_table(kind: type[T], table: Mapping[str, Any], where: str) -> T:
    """Build `kind` (every field has a default) from a TOML table; nested dataclasses are tables.

    Raises ConfigError for an unknown key or a value of another type than the default's."""
    defaults = kind()
    known = {f.name for f in fields(kind)}
    values: dict[str, Any] = {}
    for key, value in table.items():
        if key not in known:
            raise unknown_name(where, key, known)
        default = getattr(defaults, key)
        if is_dataclass(default) and not isinstance(default, type):
            if not isinstance(value, Mapping):
                raise ConfigError(f"{where} {key}: a table is needed")
            value = read_table(type(default), value, f"{where} [{key}]")
        elif type(value) is not type(default):
            needed = f"{type(default).__name__} needed, got {type(value).__name__}"
            raise ConfigError(f"{where} {key}={value!r}: {needed}")
        values[key] = value
    return kind(**values)
