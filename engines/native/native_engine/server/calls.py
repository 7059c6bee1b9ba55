"""Between the event loop and the engine thread: run requests, stream them, cancel them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass

from fastapi import Request

from native_engine.requests import GenerateRequest, GenerateResult
from native_engine.scheduler import Job
from native_engine.server.state import ServerState


class ClientGone(Exception):
    """The client closed the connection before its answer was ready."""


@dataclass(frozen=True)
class Finished:
    """A request's end: its result and seconds since it was submitted."""

    result: GenerateResult
    latency_s: float


class Call:
    """One request on its way. Iterate: lists of new tokens, one a step, then one `Finished`."""

    def __init__(self, state: ServerState, request: GenerateRequest) -> None:
        loop = asyncio.get_running_loop()
        self._state = state
        self._queue: asyncio.Queue[list[int] | GenerateResult | Exception] = asyncio.Queue()

        # The engine thread only hands over: encoding and sending are the event loop's work.
        def push(item: list[int] | GenerateResult | Exception) -> None:
            loop.call_soon_threadsafe(self._queue.put_nowait, item)

        self.request = request
        self.job = Job(request, push, push)
        self._began = time.perf_counter()
        self._ended = False

    async def __aiter__(self) -> AsyncIterator[list[int] | Finished]:
        counters = self._state.counters
        while True:
            item = await self._queue.get()
            if isinstance(item, list):
                yield item
                continue
            self._ended = True
            if isinstance(item, Exception):
                counters.failed += 1
                raise item
            counters.requests += 1
            counters.prompt_tokens += len(self.request.prompt_ids)
            counters.output_tokens += len(item.output_ids)
            counters.verify_steps += item.steps
            yield Finished(item, time.perf_counter() - self._began)
            return

    def cancel(self) -> None:
        """Nobody waits any longer; nothing to do for a request that has ended."""
        if not self._ended:
            self._ended = True
            self._state.counters.aborted += 1
        self._state.scheduler.cancel(self.job)


def submit(state: ServerState, requests: tuple[GenerateRequest, ...]) -> list[Call]:
    """Queue all or none. Raises QueueFull."""
    calls = [Call(state, request) for request in requests]
    state.scheduler.submit([call.job for call in calls])
    return calls


async def results(calls: list[Call], http: Request) -> list[Finished]:
    """Wait for every call; if the client goes away meanwhile, cancel them and raise ClientGone."""
    work = asyncio.ensure_future(_collect(calls))
    gone = asyncio.ensure_future(_disconnected(http))
    try:
        await asyncio.wait({work, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not work.done():
            raise ClientGone
        return work.result()
    finally:
        for call in calls:
            call.cancel()
        work.cancel()
        gone.cancel()


async def _collect(calls: list[Call]) -> list[Finished]:
    return [item for call in calls async for item in call if isinstance(item, Finished)]


async def _disconnected(http: Request) -> None:
    while (await http.receive())["type"] != "http.disconnect":
        pass
