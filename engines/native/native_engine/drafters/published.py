"""Published drafter configurations by name (published.toml)."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from native_engine.drafters.config import DrafterConfig
from native_engine.tables import unknown_name


@dataclass(frozen=True)
class Published:
    """One released drafter. revision: 40 hex, empty where not known. unsettled: what of `config`
    its sources leave open."""

    name: str
    repository: str
    revision: str
    target: str
    config: DrafterConfig
    unsettled: tuple[str, ...]


@cache
def _tables() -> dict[str, dict[str, Any]]:
    return tomllib.loads((Path(__file__).parent / "published.toml").read_text())


def published_names() -> list[str]:
    return sorted(_tables())


def published(name: str) -> Published:
    """ConfigError names the nearest known name."""
    tables = _tables()
    if name not in tables:
        raise unknown_name("drafter", name, tables)
    table = tables[name]
    origin = (table["repository"], table.get("revision", ""), table["target"])
    config = DrafterConfig.from_mapping(table["config"], name)
    return Published(name, *origin, config, tuple(table.get("unsettled", ())))
