"""Engines the verifier forces with: stock without speculation, started at first use, kept."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from engines.engine_process import EngineProcess
from engines.forcing import ForcedPosition, force
from engines.launcher import launch
from engines.tree_store import TreeStore
from settings.loading import load_setting
from settings.weights import ensure_target
from verifier.forced import Forcer

_TOP = 4


class StockPool:
    """One resident engine a (setting, stock commit). An engine found dead is started anew."""

    def __init__(self, store: TreeStore) -> None:
        self._store = store
        self._engines: dict[tuple[str, str], EngineProcess] = {}

    @contextmanager
    def forcer(self, setting_name: str, commit: str) -> Iterator[Forcer]:
        """A `Forcer` on stock's `ar` arm of the setting."""
        engine = self._engine(setting_name, commit)
        client = engine.client()

        def forced(
            prompt_ids: Sequence[int], output_ids: Sequence[int], /
        ) -> tuple[ForcedPosition, ...]:
            return force(client, prompt_ids, output_ids, top_k=_TOP)

        yield forced

    def _engine(self, setting_name: str, commit: str) -> EngineProcess:
        key = (setting_name, commit)
        engine = self._engines.get(key)
        if engine is not None and engine.is_running():
            return engine
        if engine is not None:
            engine.stop()
        setting = load_setting(setting_name)
        tree = self._store.tree(commit)
        self._engines[key] = launch(
            setting, "ar", self._store.checkout(commit), tree.tree_hash, ensure_target(setting)
        )
        return self._engines[key]

    def close(self) -> None:
        """Stops every engine."""
        for engine in self._engines.values():
            engine.stop()
        self._engines.clear()
