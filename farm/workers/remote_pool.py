"""Stock engines on a device that an EngineWorker owns, for a verifier that owns none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ray

from engines.answers import Answer, GenerationRequest
from farm.workers.stock_pool import ForcingPool
from verifier.forced import Pair, Position


class RemotePool(ForcingPool):
    """`lend` says whose engines to use; what was forced on one device is known on all."""

    def __init__(self) -> None:
        super().__init__()
        self._worker: Any = None

    def lend(self, worker: Any) -> None:
        """Takes the handle of an idle EngineWorker."""
        self._worker = worker

    def take_bundle(self, bundle: bytes) -> None:
        self._call("take_bundle", bundle)

    def force_many(
        self, setting_name: str, commit: str, answers: Sequence[Pair], at_once: int = 1
    ) -> list[Sequence[Position]]:
        found: list[Sequence[Position]] = self._call(
            "force_many", setting_name, commit, list(answers), at_once
        )
        return found

    def generate(self, setting_name: str, commit: str, request: GenerationRequest) -> Answer:
        answer: Answer = self._call("generate", setting_name, commit, request)
        return answer

    def stop(self, setting_name: str, commit: str) -> None:
        self._call("stop", setting_name, commit)

    def release(self) -> None:
        self._call("release")

    def _call(self, name: str, *arguments: Any) -> Any:
        return ray.get(self._worker.stock.remote(name, *arguments))
