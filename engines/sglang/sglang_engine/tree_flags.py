"""engine.toml's `[flags]` as SGLang's command-line flags."""

from __future__ import annotations

import tomllib
from pathlib import Path


def tree_flags(file: Path) -> list[str]:
    """`true` gives a bare flag; `false` none; a list several words."""
    words: list[str] = []
    for key, value in tomllib.loads(file.read_text(encoding="utf-8")).get("flags", {}).items():
        if value is False:
            continue
        words.append("--" + key.replace("_", "-"))
        if value is not True:
            words += [str(item) for item in (value if isinstance(value, list) else [value])]
    return words
