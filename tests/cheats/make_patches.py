"""Brings patches in line with `engines/native` as it is now: `python -m tests.cheats.make_patches`.

Each is applied three-way (the blobs its index lines name are in this repository's history) to a
copy of the tree and written anew. What conflicts is named and left as it was: mend it by hand.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from explorers.memory_explorer import CANARIES
from settings.paths import checkout_root
from tests.cheats.corpus import REAL, ROOT, corpus

TREE = "engines/native"


def main() -> int:
    """Exit code 1 where a patch conflicts."""
    refused = {e.patch for e in corpus(REAL) if e.verdicts == {"refused"}}
    patches = sorted({*(ROOT / "patches").glob("*.patch"), *CANARIES.glob("*/change.patch")})
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "copy"
        _git(Path(folder), "clone", "--quiet", "--shared", str(checkout_root()), str(copy))
        shutil.rmtree(copy / TREE)
        ignored = shutil.ignore_patterns("__pycache__", "*_build")
        shutil.copytree(checkout_root() / TREE, copy / TREE, ignore=ignored)
        _git(copy, "add", "--all", TREE)
        who = ("-c", "user.name=corpus", "-c", "user.email=corpus@localhost")
        _git(copy, *who, "commit", "--quiet", "--allow-empty", "--message", "the tree as it is now")
        stale = [path for path in patches if path not in refused and not _remade(copy, path)]
    for path in stale:
        print(f"conflict: {path.relative_to(checkout_root())}", file=sys.stderr)
    return 1 if stale else 0


def _remade(copy: Path, patch: Path) -> bool:
    """Writes `patch` anew; False where it no longer applies."""
    try:
        _git(copy, "apply", "--3way", f"--directory={TREE}", str(patch))
        diff = _git(copy, "diff", "HEAD", "--binary", "--no-color", f"--relative={TREE}")
    except subprocess.CalledProcessError:
        return False
    finally:
        _git(copy, "reset", "--quiet", "--hard")
    patch.write_bytes(diff)
    return True


def _git(folder: Path, *words: str) -> bytes:
    done = subprocess.run(["git", *words], cwd=folder, check=True, capture_output=True)
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
