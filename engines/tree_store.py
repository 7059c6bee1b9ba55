"""Engine trees as git commits: one bare repository, one commit a candidate, hash = content.

Commits carry a fixed author and date, so the same change on the same base is the same commit and
a repeated import is free. Every write is checked by a `PatchPolicy`. Safe to use from several
processes at once.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from engines.checkouts import export_tree, remove_folder, verify_checkout
from engines.errors import EngineError, PatchConflict, TreeRefused
from engines.file_lock import file_lock
from engines.git_plumbing import DIFF_OPTIONS, BareRepository, Entry, GitFailedError
from engines.knobs import KnobValue, edit_engine_toml
from engines.patch_policy import Change, PatchPolicy
from engines.process_registry import ProcessRegistry
from engines.source_files import source_files
from settings.paths import work_dir

__all__ = ["Tree", "TreeStore", "verify_checkout"]

_REF = re.compile(r"HEAD|refs/[\w./-]+")


@dataclass(frozen=True)
class Tree:
    """A commit of the store; `tree_hash` is git's, 40 hex digits, and depends on content only."""

    tree_hash: str
    commit: str


class TreeStore:
    """`root` holds engines.git and its lock (default `work/trees`); `checkouts` the exports."""

    def __init__(
        self,
        root: Path | None = None,
        checkouts: Path | None = None,
        policy: PatchPolicy | None = None,
    ) -> None:
        self.root = root or work_dir("trees")
        self.checkouts = checkouts or (
            work_dir("checkouts") if root is None else root / "checkouts"
        )
        self._is_default = root is None
        self.checkouts.mkdir(parents=True, exist_ok=True)
        self.policy = policy or PatchPolicy()
        self._lock = self.root / "lock"
        with file_lock(self._lock):
            self._repo = BareRepository(self.root / "engines.git")

    def import_stock(self, source_dir: Path, label: str) -> Tree:
        """Commit a source folder without parents; byte code, caches and build folders stay out.

        The same content gives the same commit whatever its label; the label becomes a ref.

        Raises:
            TreeRefused: a link or path that leaves the folder.
        """
        tree = self._commit(None, {}, source_files(source_dir), "stock")
        self._repo.run("update-ref", f"refs/stock/{label}", tree.commit)
        return tree

    def commit_patch(self, base_commit: str, patch_text: str, message: str) -> Tree:
        """Apply a unified diff (git's format) to `base_commit`, three-way where it has moved.

        Raises:
            TreeRefused: the policy forbids it.
            PatchConflict: it does not apply; carries git's message.
        """
        base = self._repo.commit_id(base_commit)
        self.policy.check_patch(patch_text)
        patch = patch_text.encode("utf-8", "surrogateescape")
        with file_lock(self._lock):
            try:
                tree = self._repo.apply(base, patch)
            except GitFailedError as plain:
                try:
                    tree = self._repo.apply(base, patch, "--3way")
                except GitFailedError:
                    raise PatchConflict(
                        f"the patch does not apply to {base[:12]}: {plain.message}"
                    ) from None
            return self._finish(base, tree, message)

    def commit_files(
        self, base_commit: str, files: Mapping[str, bytes | None], message: str
    ) -> Tree:
        """Write files whole (None removes one); an existing file keeps its mode."""
        base = self._repo.commit_id(base_commit)
        old = {entry.path: entry for entry in self._repo.entries(base)}
        removed: dict[str, None] = {}
        written: dict[str, tuple[str, bytes]] = {}
        for path, content in files.items():
            self.policy.check_path(path)
            if content is None:
                if path not in old:
                    raise PatchConflict(f"{path} is not in {base[:12]}, cannot remove it")
                removed[path] = None
            else:
                written[path] = (old[path].mode if path in old else "100644", content)
        return self._commit(base, removed, written, message)

    def commit_knobs(
        self, base: str, knobs: Mapping[str, KnobValue], message: str | None = None
    ) -> Tree:
        """Set keys of engine.toml (`draft.k` for a table's key), keeping its comments."""
        text = self.read_file(base, "engine.toml").decode("utf-8")
        settings = ", ".join(f"{key} = {value}" for key, value in knobs.items())
        edited = edit_engine_toml(text, knobs).encode()
        return self.commit_files(base, {"engine.toml": edited}, message or f"Set {settings}")

    def commit_tree(self, base: str, folder: Path, message: str = "Replace the tree") -> Tree:
        """Make a folder's content (less caches and build folders) the next commit."""
        base = self._repo.commit_id(base)
        new = source_files(folder)
        removed = {e.path: None for e in self._repo.entries(base) if e.path not in new}
        return self._commit(base, removed, new, message)

    def read_file(self, commit: str, path: str) -> bytes:
        """One file's bytes as of a commit."""
        for entry in self._repo.entries(self._repo.commit_id(commit)):
            if entry.path == path:
                return self._repo.blobs([entry.oid])[0]
        raise EngineError(f"{path} is not in commit {commit[:12]}")

    def tree(self, commit: str) -> Tree:
        """The commit's `Tree`; EngineError where the store lacks it."""
        full = self._repo.commit_id(commit)
        return Tree(self._repo.tree_id(full), full)

    def candidate(self, base: str, commit: str) -> Tree:
        """A commit made elsewhere, held to the policy as one change of `base`.

        Raises:
            TreeRefused: it does not descend from `base` commit by commit (its history was
                rewritten, or something was merged in), or the policy forbids the change.
        """
        start, end = self._repo.commit_id(base), self._repo.commit_id(commit)
        rows = self._repo.text("rev-list", "--topo-order", "--parents", f"{start}..{end}")
        expected = end
        for row in rows.splitlines():
            found, *parents = row.split()
            if found != expected or len(parents) != 1:
                break
            expected = parents[0]
        if expected != start:
            raise TreeRefused(
                f"commit {end[:12]} is no straight line of commits on {start[:12]}",
                "Commit the change on the stock commit itself, without rewriting or merging",
            )
        old = {entry.path: entry for entry in self._repo.entries(start)}
        self._check(self._repo.entries(end), old)
        return self.tree(end)

    def checkout(self, commit: str) -> Path:
        """A plain read-only export at `<checkouts>/<tree hash>`, verified file by file.

        An existing export is reused only if its files still hash to the tree.
        """
        with file_lock(self._lock):
            return export_tree(self._repo, self.tree(commit).tree_hash, self.checkouts)

    def diff(self, base: str, commit: str) -> str:
        """Unified diff between two commits, binary files included."""
        pair = self._repo.commit_id(base), self._repo.commit_id(commit)
        return self._repo.run("diff", *DIFF_OPTIONS, *pair).decode("utf-8", "surrogateescape")

    def patch_series(self, base: str, commit: str) -> list[str]:
        """One patch a commit from `base` to `commit` along first parents; `git apply` takes each.

        The message stands on top behind `# `, where no line of it can be read as a diff.
        """
        start, end = self._repo.commit_id(base), self._repo.commit_id(commit)
        listing = self._repo.text("rev-list", "--first-parent", "--reverse", f"{start}..{end}")
        patches, previous = [], start
        for step in listing.split():
            if self._repo.text("rev-parse", f"{step}^1") != previous:
                raise EngineError(f"commit {end[:12]} does not descend from {start[:12]}")
            message = self._repo.text("log", "-1", "--format=%B", step)
            header = "".join(f"# {line}\n" for line in message.splitlines())
            patches.append(header + self.diff(previous, step))
            previous = step
        return patches

    def bundle(self, commit: str) -> bytes:
        """A git bundle of a commit and all its ancestors."""
        full = self._repo.commit_id(commit)
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "bundle"
            options = ("-c", "pack.threads=1")
            self._repo.run(
                *options, "bundle", "create", "--quiet", str(file), f"refs/specfarm/{full}"
            )
            return file.read_bytes()

    def import_bundle(self, data: bytes) -> list[str]:
        """Take in a bundle's commits (checked like any change); the 40-hex heads it named."""
        with tempfile.TemporaryDirectory() as folder, file_lock(self._lock):
            file = Path(folder) / "bundle"
            file.write_bytes(data)
            try:
                listing = self._repo.text("bundle", "list-heads", str(file)).splitlines()
                heads = [line.split(" ", 1) for line in listing]
                if not all(_REF.fullmatch(name) for _, name in heads):
                    raise EngineError(f"the bundle names odd refs: {listing[:3]}")
                self._repo.run(
                    *("-c", "fetch.fsckObjects=true", "fetch", "--quiet", "--no-tags", str(file)),
                    *(f"{name}:refs/incoming/{number}" for number, (_, name) in enumerate(heads)),
                )
            except GitFailedError as error:
                raise EngineError(f"the bundle cannot be read: {error.message}") from None
            try:
                commits = [commit for commit, _ in heads]
                for commit in commits:
                    self._check(self._repo.entries(commit), None)
                    self._repo.run("update-ref", f"refs/specfarm/{commit}", commit)
            finally:
                self._drop_refs("refs/incoming/")
        return commits

    def prune(self, keep: Iterable[str] = ()) -> list[str]:
        """Remove every checkout but those in `keep` (tree hashes) or under a running engine; the
        names of what was removed."""
        kept, removed = set(keep), []
        if self._is_default:
            kept |= {r.tree_hash for r in ProcessRegistry().records() if r.members()}
        with file_lock(self._lock):
            for path in sorted(self.checkouts.iterdir()):
                if path.name not in kept:
                    remove_folder(path)
                    removed.append(path.name)
        return removed

    def _commit(
        self,
        base: str | None,
        removed: Mapping[str, None],
        written: Mapping[str, tuple[str, bytes]],
        message: str,
    ) -> Tree:
        for path in written:
            self.policy.check_path(path)
        with file_lock(self._lock):
            oids = self._repo.write_blobs([content for _, content in written.values()])
            changes: dict[str, tuple[str, str] | None] = dict(removed)
            for (path, (mode, _)), oid in zip(written.items(), oids, strict=True):
                changes[path] = (mode, oid)
            try:
                tree = self._repo.write_tree(base, changes)
            except GitFailedError as error:
                raise TreeRefused(error.message) from None
            return self._finish(base, tree, message)

    def _finish(self, base: str | None, tree: str, message: str) -> Tree:
        old = {e.path: e for e in self._repo.entries(base)} if base else None
        self._check(self._repo.entries(tree), old)
        return Tree(tree, self._repo.commit(tree, base, message))

    def _check(self, entries: list[Entry], old: Mapping[str, Entry] | None) -> None:
        """Holds what differs from `old` to the policy; None: a whole tree of trusted lines."""
        changed = [e for e in entries if old is None or old.get(e.path) != e]
        self.policy.check_names(e.path for e in entries)
        if old is not None:
            removed = old.keys() - {e.path for e in entries}
            self.policy.check_count(len(changed) + len(removed))
        for entry in changed:
            if entry.mode == "160000":
                raise TreeRefused(f"{entry.path} is a submodule", "Commit its files instead")
        sizes = self._repo.sizes(e.oid for e in changed)
        for entry, size in zip(changed, sizes, strict=True):
            self.policy.check_size(entry.path, size)
        self.policy.check_size("the change", sum(sizes))
        contents = self._repo.blobs(e.oid for e in changed)
        known = old or {}
        earlier = iter(self._repo.blobs(known[e.path].oid for e in changed if e.path in known))
        befores = [
            None if old is None else next(earlier) if e.path in known else b"" for e in changed
        ]
        self.policy.check_changes(
            Change(e.path, e.mode, content, before)
            for e, content, before in zip(changed, contents, befores, strict=True)
        )

    def _drop_refs(self, prefix: str) -> None:
        for ref in self._repo.text("for-each-ref", "--format=%(refname)", prefix).split():
            self._repo.run("update-ref", "-d", ref)
