"""What a candidate's commit may do to its tree. Checked on the patch text and on the result.

A refusal is a policy verdict, not a proof of honesty: a tree can still cheat in code no pattern
knows. Losslessness is decided by the verifier alone.
"""

from __future__ import annotations

import posixpath
import re
import tomllib
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from engines.errors import TreeRefused
from engines.file_kinds import opaque_kind
from engines.forbidden_switches import find_switch, forbidden_entry

MIB = 1024 * 1024
_RESERVED = frozenset({".git", ".gitmodules", ".gitattributes", ".gitconfig", "git~1"})
# Python runs these before the engine's own first line.
_START_UP_HOOKS = frozenset({"sitecustomize.py", "usercustomize.py"})
_MODES = frozenset({"100644", "100755", "120000"})
_HUNK = re.compile(r"^@@ -\d+(?:,(\d+))? \+\d+(?:,(\d+))? @@")
_PATH_LINE = re.compile(r"^(?:--- |\+\+\+ |rename from |rename to |copy from |copy to )(.+)$")
_BINARY_SIZE = re.compile(r"^(?:literal|delta) (\d{1,18})$")


@dataclass(frozen=True)
class Change:
    """One path of a commit: git mode and bytes after it (`content` None = removed), and before
    (None where nothing is the change's own: a stock tree, a bundle)."""

    path: str
    mode: str
    content: bytes | None
    before: bytes | None = b""


@dataclass(frozen=True)
class PatchPolicy:
    """Limits of a change. Sizes in bytes; `setting_owned_keys` are refused in engine.toml."""

    setting_owned_keys: frozenset[str] = field(default_factory=frozenset)
    max_file_bytes: int = 8 * MIB
    max_change_bytes: int = 32 * MIB
    max_files: int = 200

    def check_path(self, path: str, where: str = "") -> None:
        """Raises TreeRefused unless `path` is a plain relative path inside the tree."""
        parts = path.split("/")
        names = {part.lower() for part in parts}
        problem = ""
        if path.startswith("/"):
            problem = "is absolute"
        elif ".." in parts:
            problem = "leaves the tree"
        elif names & _RESERVED:
            problem = "is git's own"
        elif any(part in ("", ".") for part in parts):
            problem = "is not a plain path"
        elif not path.isprintable() or "\\" in path or '"' in path:
            problem = "holds a character that is not allowed"
        elif names & _START_UP_HOOKS:
            problem = "is a start-up hook of Python"
        if problem:
            raise TreeRefused(
                f"path {path!r}{where} {problem}", "Change only plain paths inside the engine tree"
            )

    def check_patch(self, text: str) -> None:
        """Refuses a patch by its headers, before git sees it; names the path and the line."""
        self.check_size("the patch", len(text.encode("utf-8", "surrogateescape")))
        for number, line in _header_lines(text):
            where = f" (patch line {number})"
            if line.startswith("diff --git "):
                for word in line[len("diff --git ") :].split(" "):
                    if word.startswith(("a/", "b/")) and ".." in word.split("/"):
                        self.check_path(word[2:], where)
            # What a compressed hunk unfolds to, before git writes it to disk.
            packed = _BINARY_SIZE.match(line)
            if packed:
                self.check_size(f"a binary hunk{where}", int(packed[1]))
            match = _PATH_LINE.match(line)
            if match is None:
                continue
            path = match[1].split("\t")[0]
            if path == "/dev/null":
                continue
            if line.startswith(("--- ", "+++ ")) and path.startswith(("a/", "b/")):
                path = path[2:]
            self.check_path(path, where)

    def check_size(self, what: str, size: int) -> None:
        if size > self.max_change_bytes:
            raise TreeRefused(
                f"{what} is {size} bytes, more than {self.max_change_bytes}", "Make it smaller"
            )

    def check_count(self, files: int) -> None:
        """Refuses a change of more than `max_files` files, removed ones included."""
        if files > self.max_files:
            raise TreeRefused(
                f"the change touches {files} files, more than {self.max_files}",
                "Change only what the mechanism needs",
            )

    def check_names(self, paths: Iterable[str]) -> None:
        """Refuses two paths of a tree that some file system takes for one (letter case, Unicode
        form): which of the files an engine runs would depend on the machine."""
        seen: dict[str, str] = {}
        for path in paths:
            parts = path.split("/")
            for depth in range(1, len(parts) + 1):
                name = "/".join(parts[:depth])
                folded = unicodedata.normalize("NFC", name).casefold()
                if seen.setdefault(folded, name) != name:
                    raise TreeRefused(
                        f"paths {seen[folded]!r} and {name!r} differ only in letter case",
                        "Name one of them otherwise",
                    )

    def check_changes(self, changes: Iterable[Change]) -> None:
        """Refuses the result of a commit; names path and line."""
        total = 0
        for change in changes:
            self.check_path(change.path)
            if change.content is None:
                continue
            self._check_mode(change)
            if len(change.content) > self.max_file_bytes:
                raise TreeRefused(
                    f"{change.path} is {len(change.content)} bytes, more than {self.max_file_bytes}"
                )
            total += len(change.content)
            self.check_size("the change", total)
            if change.before is not None and change.before != change.content:
                _check_content(change.path, change.content, change.before)
            if change.path == "engine.toml":
                self.check_engine_toml(change.content)

    def _check_mode(self, change: Change) -> None:
        if change.mode not in _MODES:
            raise TreeRefused(
                f"{change.path} has mode {change.mode}", "Only files and inner links are allowed"
            )
        if change.mode == "120000" and change.content is not None:
            target = change.content.decode("utf-8", "replace")
            inner = posixpath.normpath(posixpath.join(posixpath.dirname(change.path), target))
            if target.startswith("/") or inner.startswith("../") or inner == "..":
                raise TreeRefused(f"link {change.path} -> {target} leaves the tree")
            self.check_path(inner, f" (target of link {change.path})")

    def check_engine_toml(self, content: bytes) -> None:
        """Refuses an engine.toml that is not TOML, holds a key that setting.toml owns, or sets a
        forbidden switch, in whatever table and spelling; names the line where the key stands."""
        try:
            text = content.decode("utf-8")
            document = tomllib.loads(text)
        except (ValueError, RecursionError) as error:
            raise TreeRefused(f"engine.toml is not TOML: {error}") from None
        owned = {_plain(key) for key in self.setting_owned_keys}
        for dotted, value in _entries(document):
            key = dotted.rsplit(".", 1)[-1]
            if _plain(key) in owned:
                raise TreeRefused(
                    f"engine.toml{_line_of(text, key)}: {dotted} belongs to setting.toml",
                    "engine.toml holds performance knobs only",
                )
            if remedy := forbidden_entry(dotted, value):
                raise TreeRefused(
                    f"engine.toml{_line_of(text, key)} sets {dotted} = {value!r:.40}", remedy
                )


def _plain(key: str) -> str:
    return key.lower().replace("-", "_")


def _entries(value: object, prefix: str = "") -> Iterator[tuple[str, object]]:
    """(dotted name, value) of every key at any depth, tables and lists of tables included."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield f"{prefix}{key}", inner
            yield from _entries(inner, f"{prefix}{key}.")
    elif isinstance(value, list):
        for item in value:
            yield from _entries(item, prefix)


def _line_of(text: str, key: str) -> str:
    lines = text.splitlines()
    found = next((n for n, line in enumerate(lines, 1) if key in line.split("#")[0]), None)
    return "" if found is None else f" line {found}"


def _header_lines(text: str) -> Iterator[tuple[int, str]]:
    """(line number, line) of everything outside hunk bodies."""
    old = new = 0
    for number, line in enumerate(text.split("\n"), 1):
        if old > 0 or new > 0:
            if line.startswith("\\"):
                continue
            old -= not line.startswith("+")
            new -= not line.startswith("-")
            continue
        hunk = _HUNK.match(line)
        if hunk:
            old, new = int(hunk[1] or 1), int(hunk[2] or 1)
            continue
        yield number, line


def _check_content(path: str, content: bytes, before: bytes) -> None:
    kind = opaque_kind(path, content)
    if kind is not None:
        raise TreeRefused(
            f"{path} is {kind}, which no reader of the change can see into",
            "Ship source or text tables (weights as .safetensors)",
        )
    known = frozenset(before.decode("utf-8", "replace").splitlines())
    switch = find_switch(content.decode("utf-8", "replace"), known)
    if switch is not None:
        raise TreeRefused(f"{path} line {switch.line} sets {switch.sets}", switch.remedy)
