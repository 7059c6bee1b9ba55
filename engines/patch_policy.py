"""What a candidate's commit may do to its tree. Checked on the patch text and on the result.

A refusal is a policy verdict, not a proof of honesty: a tree can still cheat in code no pattern
knows. Losslessness is decided by the verifier alone.
"""

from __future__ import annotations

import posixpath
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from engines.errors import TreeRefused

MIB = 1024 * 1024
_RESERVED = frozenset({".git", ".gitmodules", ".gitattributes"})
_MODES = frozenset({"100644", "100755", "120000"})
_SIMULATED = re.compile(r"SGLANG_SIMULATE_ACC\w*")
_THRESHOLD = re.compile(
    r"(?P<name>[\w-]*accept[-_]threshold[\w-]*)[\"'\]\s=:,(]+(?P<value>\d*\.?\d+(?:[eE][-+]?\d+)?)"
)
_HUNK = re.compile(r"^@@ -\d+(?:,(\d+))? \+\d+(?:,(\d+))? @@")
_PATH_LINE = re.compile(r"^(?:--- |\+\+\+ |rename from |rename to |copy from |copy to )(.+)$")


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

    def check_path(self, path: str, where: str = "") -> None:
        """Raises TreeRefused unless `path` is a plain relative path inside the tree."""
        parts = path.split("/")
        problem = ""
        if path.startswith("/"):
            problem = "is absolute"
        elif ".." in parts:
            problem = "leaves the tree"
        elif any(part.lower() in _RESERVED for part in parts):
            problem = "is git's own"
        elif any(part in ("", ".") for part in parts):
            problem = "is not a plain path"
        elif not path.isprintable() or "\\" in path or '"' in path:
            problem = "holds a character that is not allowed"
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
            _check_switches(change)
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
        """Refuses an engine.toml that is not TOML or holds a key that setting.toml owns."""
        try:
            document = tomllib.loads(content.decode("utf-8"))
        except ValueError as error:
            raise TreeRefused(f"engine.toml is not TOML: {error}") from None
        for dotted in _keys(document):
            if dotted.rsplit(".", 1)[-1] in self.setting_owned_keys:
                raise TreeRefused(
                    f"engine.toml: {dotted} belongs to setting.toml",
                    "engine.toml holds performance knobs only",
                )


def _keys(table: Mapping[str, object], prefix: str = "") -> Iterator[str]:
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _keys(value, f"{prefix}{key}.")
        else:
            yield prefix + key


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


def _check_switches(change: Change) -> None:
    if change.before is None:
        return
    known = set(change.before.decode("utf-8", "replace").splitlines())
    for number, line in enumerate((change.content or b"").decode("utf-8", "replace").splitlines()):
        if line in known:
            continue
        simulated = _SIMULATED.search(line)
        if simulated:
            raise TreeRefused(
                f"{change.path} line {number + 1} sets {simulated[0]}",
                "Simulated acceptance commits tokens that the target would not choose",
            )
        for match in _THRESHOLD.finditer(line):
            if float(match["value"]) < 1.0:
                raise TreeRefused(
                    f"{change.path} line {number + 1} sets {match['name']} = {match['value']}",
                    "An accept threshold below 1 is lossy",
                )
