"""POST /generate: SGLang's native API."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response

from native_engine.requests import GenerateResult
from native_engine.server.calls import Call, Finished, results, submit
from native_engine.server.fields import read_fields
from native_engine.server.native_reply import meta_info, visible_text
from native_engine.server.native_request import parse_generate
from native_engine.server.state import ServerState
from native_engine.server.streaming import EventStream, sse
from native_engine.tokenizer import TextStream


def add_native_api(app: FastAPI, state: ServerState) -> None:
    """Route /generate."""

    @app.api_route("/generate", methods=["POST", "PUT"])
    async def generate(http: Request) -> Response:
        fields = await read_fields(http, state.facts.max_body_bytes)
        requests, batched, stream = parse_generate(fields, state)
        calls = submit(state, requests)
        if stream:
            return EventStream(calls[0], _events(calls[0], state))
        finished = await results(calls, http)
        replies = [_reply(c, f, state) for c, f in zip(calls, finished, strict=True)]
        return JSONResponse(replies if batched else replies[0])


def _reply(call: Call, finished: Finished, state: ServerState) -> dict[str, Any]:
    result = finished.result
    text = state.tokenizer.decode(result.output_ids) if state.tokenizer else ""
    return {
        "text": visible_text(call.request, result, text),
        "output_ids": result.output_ids,
        "meta_info": meta_info(call.request, result, finished.latency_s, state.facts.tree_hash),
    }


async def _events(call: Call, state: ServerState) -> AsyncIterator[bytes]:
    """Cumulative text and ids, one event an engine step; the last carries the whole meta_info."""
    partial = GenerateResult()
    stream = TextStream(state.tokenizer) if state.tokenizer else None
    async for item in call:
        if isinstance(item, Finished):
            yield sse(_reply(call, item, state))
            return
        partial.output_ids.extend(item)
        partial.replayed = state.replayed
        yield sse(
            {
                "text": stream.push(item) if stream else "",
                "output_ids": partial.output_ids,
                "meta_info": meta_info(call.request, partial, None, state.facts.tree_hash),
            }
        )
