"""The engine stays small enough to read in an evening, and stands on its own."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from pathlib import Path

ENGINE = Path(__file__).parents[3] / "engines/native/native_engine"
APART = ("kernels", "w12")
"""CUDA kernels and the 12-bit format: linear backends with a page of their own (docs/w12.md)."""
MOST_CODE_LINES = 5000
SILENT = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}


def code_lines(text: str) -> int:
    """Lines that hold code: not blank, not only a comment, not of a docstring."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in SILENT:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(text)):
        documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
        if isinstance(node, documented) and ast.get_docstring(node) is not None:
            first = node.body[0]
            lines.difference_update(range(first.lineno, (first.end_lineno or 0) + 1))
    return len(lines)


def test_the_counter_leaves_out_blank_lines_comments_and_docstrings() -> None:
    text = '"""A\nmodule."""\n\n# alone\nx = """two\nlines"""  # beside\n\n\ndef f() -> None:\n'
    assert code_lines(text + '    """One."""\n') == 3
    assert code_lines(text + "    return None\n") == 4


def test_the_engine_has_at_most_5000_lines_of_code() -> None:
    counts = {
        path.relative_to(ENGINE).as_posix(): code_lines(path.read_text())
        for path in ENGINE.rglob("*.py")
        if path.relative_to(ENGINE).parts[0] not in APART
    }
    longest = sorted(counts, key=lambda name: -counts[name])[:8]
    total = sum(counts.values())
    assert total <= MOST_CODE_LINES, f"{total}; the longest: {[(n, counts[n]) for n in longest]}"


def test_the_engine_does_not_import_its_tools() -> None:
    importing = re.compile(r"^\s*(?:from|import) native_tools\b", re.MULTILINE)
    assert not [path for path in ENGINE.rglob("*.py") if importing.search(path.read_text())]
