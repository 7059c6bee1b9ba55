"""The corpus as data: corpus.toml and the patches beside it."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent
TINY, REAL = "tiny", "real"


@dataclass(frozen=True)
class Entry:
    """One candidate of the corpus; the fields are corpus.toml's.

    `patch` is a file relative to this folder; None changes nothing but the pace."""

    name: str
    does: str
    rows: tuple[str, ...]
    verdicts: frozenset[str]
    caught_by: frozenset[str]
    patch: Path | None
    control: bool = False
    lossy: bool = False
    pace: float | None = None
    carried: bool = False
    on: frozenset[str] = frozenset({TINY, REAL})
    own_lengths: bool = False
    sandboxed: bool = False

    def __str__(self) -> str:
        return self.name

    @property
    def change(self) -> str:
        """The diff, as git takes it."""
        if self.patch is None:
            return ""
        return self.patch.read_bytes().decode("utf-8", "surrogateescape")


@cache
def corpus(setting: str) -> tuple[Entry, ...]:
    """The candidates for `tiny` or `real`, in the manifest's order, with its overrides applied."""
    document = tomllib.loads((ROOT / "corpus.toml").read_text())
    entries = [_entry(raw, setting) for raw in document["candidate"]]
    return tuple(entry for entry in entries if setting in entry.on)


def _entry(raw: Mapping[str, Any], setting: str) -> Entry:
    plain = {key: value for key, value in raw.items() if key not in (TINY, REAL)}
    fields = plain | raw.get(setting, {})
    patch = fields.pop("patch", f"patches/{raw['name']}.patch")
    for name in ("verdicts", "caught_by", "on"):
        if name in fields:
            fields[name] = frozenset(fields[name])
    fields["rows"] = tuple(fields["rows"])
    return Entry(patch=ROOT / patch if patch else None, **fields)
