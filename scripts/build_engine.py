#!/usr/bin/env python3
"""Assemble the tree of one arm and print its hash and folder: build_engine.py SETTING ARM."""

import argparse
import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PYTHON = ROOT / ".venv" / "bin" / "python"
if PYTHON.exists() and Path(sys.prefix) != ROOT / ".venv":
    os.execv(PYTHON, [str(PYTHON), *sys.argv])
sys.path.insert(0, str(ROOT))

from engines.resolve import resolve_arm  # noqa: E402
from settings.errors import SpecfarmError  # noqa: E402
from settings.loading import load_setting  # noqa: E402


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("setting")
    parser.add_argument("arm", choices=("final", "stock", "ar"))
    options = parser.parse_args()
    try:
        tree = resolve_arm(load_setting(options.setting), options.arm)
    except SpecfarmError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    print(f"{tree.tree_hash} {tree.path}\n{tree.origin}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
