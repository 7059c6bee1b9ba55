"""Weights that ship with the repository: `python -m settings.checkout_weights [--write]`.

Every setting whose checkpoint has `source = "checkout"` says the sha256 and size of its
model.safetensors; after new weights are put there, --write brings those lines, and the table in
docs/settings.md, in line."""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

from settings.errors import SpecfarmError
from settings.loading import settings_root
from settings.paths import checkout_root
from settings.provision import sha256_of
from settings.table import main as make_table
from settings.weights import WEIGHTS


def recorded(file: Path) -> tuple[str, str]:
    """A setting.toml's text as it is, and as its weights make it.

    Raises:
        SpecfarmError: the weights it names are not there.
    """
    text = file.read_text(encoding="utf-8")
    changed = text
    for role in ("target", "drafter"):
        checkpoint = tomllib.loads(text).get(role, {}).get("checkpoint", {})
        if checkpoint.get("source") == "checkout":
            weights = checkout_root() / checkpoint["path"] / WEIGHTS
            if not weights.is_file():
                raise SpecfarmError(f"{file}: {weights} does not exist", "Put the weights there")
            head, table, rest = changed.partition(f"[{role}.checkpoint]\n")
            rest = re.sub(r'(?m)^sha256 = ".*"$', f'sha256 = "{sha256_of(weights)}"', rest, count=1)
            size = f"size_bytes = {weights.stat().st_size}"
            changed = head + table + re.sub(r"(?m)^size_bytes = \S+$", size, rest, count=1)
    return text, changed


def main(arguments: list[str] | None = None) -> int:
    """Exit 1 where a setting says otherwise than its weights and --write is not given."""
    write = "--write" in (sys.argv[1:] if arguments is None else arguments)
    stale = []
    try:
        for file in sorted(settings_root().glob("*/setting.toml")):
            before, after = recorded(file)
            if before != after:
                stale.append(file)
                if write:
                    file.write_text(after, encoding="utf-8")
    except SpecfarmError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    if write:
        make_table(["--write"])
    for file in stale:
        print(f"{'written' if write else 'not as its weights are'}: {file}")
    return 1 if stale and not write else 0


if __name__ == "__main__":
    raise SystemExit(main())
