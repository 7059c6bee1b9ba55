"""Function signatures with their docstrings out of Python's own standard library source."""

from __future__ import annotations

import ast
import sysconfig
import textwrap
import warnings
from collections.abc import Iterator
from pathlib import Path

_SKIPPED = {"test", "tests", "idle_test", "site-packages", "dist-packages", "lib2to3", "idlelib"}
_DOCSTRING_CHARACTERS = range(30, 900)


def library_functions() -> list[str]:
    """Signature and docstring of every documented function, each once, in a fixed order."""
    root = Path(sysconfig.get_paths()["stdlib"])
    found: dict[str, None] = {}
    for path in sorted(root.rglob("*.py")):
        if not _SKIPPED.intersection(path.relative_to(root).parts):
            found.update(dict.fromkeys(functions_of(path.read_bytes())))
    return list(found)


def functions_of(source: bytes) -> Iterator[str]:
    """As `library_functions`, of one module; nothing where it does not parse."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(source)
        lines = source.decode().splitlines()
    except (SyntaxError, ValueError):
        return
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef):
            continue
        first = node.body[0]
        text = ast.get_docstring(node, clean=False)
        if text is None or len(text) not in _DOCSTRING_CHARACTERS or first.lineno <= node.lineno:
            continue
        yield textwrap.dedent("\n".join(lines[node.lineno - 1 : first.end_lineno])).rstrip()
