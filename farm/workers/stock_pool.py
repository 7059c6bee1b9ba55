"""Engines the verifier forces with: stock without speculation, started at first use, kept.

What stock says of a given answer does not depend on who gave it: answers that several candidates
share are forced once.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from engines.answers import Answer, GenerationRequest
from engines.engine_process import EngineProcess
from engines.forcing import force
from engines.launcher import launch
from engines.tree_store import TreeStore
from settings.loading import load_setting
from settings.weights import ensure_target
from verifier.forced import Forcer, Pair, Position

_TOP = 4


class ForcingPool(ABC):
    """Stock's `ar` arm of (setting, commit), wherever it runs."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], dict[Pair, Sequence[Position]]] = {}

    @abstractmethod
    def take_bundle(self, bundle: bytes) -> None:
        """Makes the commits of a git bundle known where the engines run."""

    @abstractmethod
    def force_many(
        self, setting_name: str, commit: str, answers: Sequence[Pair], at_once: int = 1
    ) -> list[Sequence[Position]]:
        """Forces (prompt ids, output ids) pairs, known or not, so many requests at a time."""

    @abstractmethod
    def generate(self, setting_name: str, commit: str, request: GenerationRequest) -> Answer:
        """Stock's own answer."""

    @abstractmethod
    def stop(self, setting_name: str, commit: str) -> None:
        """Stops one engine, if it runs."""

    @abstractmethod
    def release(self) -> None:
        """Stops every engine, so that others may have the device; what was forced stays known."""

    @contextmanager
    def forcer(self, setting_name: str, commit: str) -> Iterator[Forcer]:
        """Forces what is not known yet."""
        known = self._known.setdefault((setting_name, commit), {})

        def forced(prompt_ids: Sequence[int], output_ids: Sequence[int], /) -> Sequence[Position]:
            key = tuple(prompt_ids), tuple(output_ids)
            if key not in known:
                (known[key],) = self.force_many(setting_name, commit, [key])
            return known[key]

        yield forced


class StockPool(ForcingPool):
    """Engines of this process, one a (setting, stock commit). One found dead is started anew.
    `launches` counts engines started."""

    def __init__(self, store: TreeStore) -> None:
        super().__init__()
        self._store = store
        self._engines: dict[tuple[str, str], EngineProcess] = {}
        self.launches = 0

    def take_bundle(self, bundle: bytes) -> None:
        self._store.import_bundle(bundle)

    def force_many(
        self, setting_name: str, commit: str, answers: Sequence[Pair], at_once: int = 1
    ) -> list[Sequence[Position]]:
        client = self._engine(setting_name, commit).client()
        with ThreadPoolExecutor(max_workers=at_once) as pool:
            return list(pool.map(lambda pair: force(client, pair[0], pair[1], _TOP), answers))

    def generate(self, setting_name: str, commit: str, request: GenerationRequest) -> Answer:
        return self._engine(setting_name, commit).client().generate(request)

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
        self.launches += 1
        return self._engines[key]

    def stop(self, setting_name: str, commit: str) -> None:
        engine = self._engines.pop((setting_name, commit), None)
        if engine is not None:
            engine.stop()

    def release(self) -> None:
        for key in list(self._engines):
            self.stop(*key)
