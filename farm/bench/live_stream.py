"""One answer being streamed in a thread, so that its engine can be stopped and continued."""

from __future__ import annotations

import threading
import time
from typing import Any

from engines.answers import Answer, GenerationRequest
from farm.bench.protocol import StreamingClient


class LiveStream:
    """Starts streaming at once. `first` is set at the first event or at the end, `done` at the
    end; `answer()` gives the answer or raises what the client raised; `failed_s` is the monotonic
    second at which it did, None while it has not."""

    def __init__(self, client: StreamingClient, request: GenerationRequest) -> None:
        self.first = threading.Event()
        self.done = threading.Event()
        self.failed_s: float | None = None
        self._answer: Answer | None = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(
            target=self._run, args=(client, request), name=f"stream-{request.id}", daemon=True
        )
        self._thread.start()

    def _run(self, client: StreamingClient, request: GenerationRequest) -> None:
        try:
            self._answer = client.stream(request, on_event=self._on_event)
        except BaseException as error:
            self._error, self.failed_s = error, time.monotonic()
        finally:
            self.first.set()
            self.done.set()

    def _on_event(self, *_: Any, **__: Any) -> None:
        self.first.set()

    @property
    def error(self) -> BaseException | None:
        return self._error

    @property
    def failed(self) -> bool:
        return self._error is not None

    def answer(self) -> Answer:
        """Waits for the end. Raises the client's own error (an EngineError)."""
        self._thread.join()
        if self._error is not None:
            raise self._error
        assert self._answer is not None
        return self._answer
