"""`python -m sglang_engine.server --arm A --tree-hash H SGLANG-FLAGS...`: SGLang's own server.

Nothing of SGLang is changed but for what is added to `/server_info`. Its scheduler processes import
this module again, so what stands at module level holds in them too.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

import torch

from . import cpu_shims
from .identity import IdentityMiddleware
from .tree_flags import tree_flags

TREE = Path(__file__).resolve().parents[1]

if torch.version.cuda is None:
    cpu_shims.install()


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="sglang_engine.server", allow_abbrev=False)
    parser.add_argument("--arm", required=True)
    parser.add_argument("--tree-hash", required=True)
    ours, sglang_flags = parser.parse_known_args(argv)
    # Imported here: half a minute on a slow machine, and a wrong flag of ours is known before.
    from sglang.launch_server import run_server
    from sglang.srt.entrypoints.http_server import app
    from sglang.srt.server_args import prepare_server_args
    from sglang.srt.utils import kill_process_tree

    facts = {"arm": ours.arm, "tree_hash": ours.tree_hash, "replayed": False}
    app.add_middleware(IdentityMiddleware, facts=facts)
    try:
        run_server(prepare_server_args([*tree_flags(TREE / "engine.toml"), *sglang_flags]))
    finally:
        kill_process_tree(os.getpid(), include_parent=False)
    return 0


if __name__ == "__main__":
    sys.exit(main())
