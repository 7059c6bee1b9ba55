"""Launch stock without speculation and hand out a `Forcer` on it, for use outside a campaign.

Imports this checkout's stock tree into the tree store; a campaign passes its own launch instead.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from engines.forcing import force
from engines.launcher import launch
from engines.registry import engine_driver
from engines.tree_store import TreeStore
from settings.loading import load_setting
from settings.weights import ensure_target
from verifier.forced import TOP_K, Forcer, Position


@contextmanager
def launch_stock_forcer(setting_name: str | Path) -> Iterator[Forcer]:
    """A forcer on arm `ar` of the stock tree, stopped at the end of the block.

    Raises:
        engines.errors.EngineError: stock does not start or serve.
    """
    setting = load_setting(setting_name)
    model_dir = ensure_target(setting)
    store = TreeStore()
    tree = store.import_stock(engine_driver(setting.engine.name).stock_source(), "stock")
    folder = store.checkout(tree.commit)
    with launch(setting, "ar", folder, tree.tree_hash, model_dir) as process:
        client = process.client()

        def forcer(prompt_ids: Sequence[int], output_ids: Sequence[int]) -> Sequence[Position]:
            return force(client, prompt_ids, output_ids, top_k=TOP_K)

        yield forcer
