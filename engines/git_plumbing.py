"""A bare repository driven by git's plumbing: no work tree, no user's configuration, no clock.

Every call names its own index file, so that callers in several processes never share state.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import git

from engines.errors import EngineError

# Fixed identity and date: the same content and parent always give the same commit.
_IDENTITY = {
    f"GIT_{role}_{part}": value
    for role in ("AUTHOR", "COMMITTER")
    for part, value in (
        ("NAME", "specfarm"),
        ("EMAIL", "specfarm@localhost"),
        ("DATE", "1700000000 +0000"),
    )
}
_ISOLATION = {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": "/dev/null", "LC_ALL": "C"}
DIFF_OPTIONS = (
    "--binary",
    "--full-index",
    "--no-renames",
    "--no-color",
    "--no-ext-diff",
    "--no-textconv",
)


class GitFailedError(EngineError):
    """A git command failed; the message is git's own."""


@dataclass(frozen=True)
class Entry:
    """One row of a tree: git mode (`100644`, `100755`, `120000`, `160000`), object id, path."""

    mode: str
    oid: str
    path: str


class BareRepository:
    """`path` is created as a bare repository at first use."""

    def __init__(self, path: Path) -> None:
        self.path = path
        if not (path / "HEAD").exists():
            git.Repo.init(path, bare=True, mkdir=True).close()
        self._git = git.Git(str(path))

    def run(self, *args: str, stdin: bytes | None = None, index: Path | None = None) -> bytes:
        """Standard output of `git <args>`.

        Raises:
            GitFailedError: with the command's standard error.
        """
        env = {**_IDENTITY, **_ISOLATION, "GIT_DIR": str(self.path)}
        env["GIT_INDEX_FILE"] = str(index or self.path / "no-index")
        with tempfile.TemporaryFile() as stream:
            stream.write(stdin or b"")
            stream.seek(0)
            try:
                output = self._git.execute(
                    ["git", *args],
                    istream=stream,
                    env=env,
                    stdout_as_string=False,
                    strip_newline_in_stdout=False,
                )
            except git.GitCommandError as error:
                text = str(error.stderr).strip().removeprefix("stderr: ").strip("'")
                raise GitFailedError(f"git {args[0]}: {text}") from None
        assert isinstance(output, bytes)
        return output

    def text(self, *args: str, stdin: bytes | None = None, index: Path | None = None) -> str:
        """`run`, decoded and stripped."""
        return self.run(*args, stdin=stdin, index=index).decode().strip()

    def commit_id(self, name: str) -> str:
        """The 40-hex commit that `name` stands for."""
        try:
            return self.text(
                "rev-parse", "--verify", "--quiet", "--end-of-options", name + "^{commit}"
            )
        except GitFailedError:
            raise EngineError(
                f"commit {name!r} is not in the tree store", "Import its bundle first"
            ) from None

    def tree_id(self, commit: str) -> str:
        """The 40-hex tree hash of a commit."""
        return self.text("rev-parse", "--verify", commit + "^{tree}")

    def entries(self, tree: str) -> list[Entry]:
        """Every file, link and submodule below a tree or commit."""
        rows = []
        for row in self.run("ls-tree", "-r", "-z", "--full-tree", tree).split(b"\0"):
            if row:
                meta, path = row.split(b"\t", 1)
                mode, _, oid = meta.decode().split(" ")
                rows.append(Entry(mode, oid, path.decode("utf-8", "surrogateescape")))
        return rows

    def sizes(self, oids: Iterable[str]) -> list[int]:
        """Sizes in bytes of blobs, in order."""
        ask = "".join(f"{oid}\n" for oid in oids).encode()
        rows = self.text("cat-file", "--batch-check=%(objectsize)", stdin=ask) if ask else ""
        return [int(row) for row in rows.split()]

    def blobs(self, oids: Iterable[str]) -> list[bytes]:
        """Contents of blobs, in order."""
        wanted = list(oids)
        if not wanted:
            return []
        data = self.run("cat-file", "--batch", stdin="".join(f"{o}\n" for o in wanted).encode())
        found, at = [], 0
        for oid in wanted:
            end = data.index(b"\n", at)
            header = data[at:end].split()
            if len(header) != 3:
                raise GitFailedError(f"object {oid} is missing from the tree store")
            size = int(header[2])
            found.append(data[end + 1 : end + 1 + size])
            at = end + 1 + size + 1
        return found

    def write_blobs(self, contents: list[bytes]) -> list[str]:
        """Store contents unfiltered; their object ids, in order."""
        if not contents:
            return []
        with tempfile.TemporaryDirectory() as folder:
            names = []
            for number, content in enumerate(contents):
                file = Path(folder) / str(number)
                file.write_bytes(content)
                names.append(str(file))
            listing = "".join(f"{name}\n" for name in names).encode()
            return self.text(
                "hash-object", "-w", "--no-filters", "--stdin-paths", stdin=listing
            ).split()

    def write_tree(self, base: str | None, changes: Mapping[str, tuple[str, str] | None]) -> str:
        """`base` (a commit or tree, None = empty) with {path: (mode, oid) or None = removed}."""
        with tempfile.TemporaryDirectory() as folder:
            index = Path(folder) / "index"
            self.run("read-tree", *([base] if base else ["--empty"]), index=index)
            rows = b"".join(
                f"{entry[0]} {entry[1]}\t{path}\0".encode("utf-8", "surrogateescape")
                if entry
                else f"0 {'0' * 40}\t{path}\0".encode("utf-8", "surrogateescape")
                for path, entry in changes.items()
            )
            self.run("update-index", "-z", "--index-info", stdin=rows, index=index)
            return self.text("write-tree", index=index)

    def apply(self, base: str, patch: bytes, *options: str) -> str:
        """Tree id of `base` with a patch applied in a private index."""
        with tempfile.TemporaryDirectory() as folder:
            index = Path(folder) / "index"
            self.run("read-tree", base, index=index)
            self.run(
                "apply", "--cached", "--whitespace=nowarn", *options, "-", stdin=patch, index=index
            )
            return self.text("write-tree", index=index)

    def commit(self, tree: str, parent: str | None, message: str) -> str:
        """Commit a tree under a ref of its own, so that it is never collected."""
        parents = ["-p", parent] if parent else []
        commit = self.text("commit-tree", tree, *parents, stdin=message.encode("utf-8"))
        self.run("update-ref", f"refs/specfarm/{commit}", commit)
        return commit
