"""POST /generate: SGLang's native API."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response, StreamingResponse

from native_engine.errors import NativeEngineError
from native_engine.requests import GenerateResult
from native_engine.server.calls import Call, Finished, results, submit
from native_engine.server.fields import parse_object
from native_engine.server.native_reply import meta_info, visible_text
from native_engine.server.native_request import parse_generate
from native_engine.server.state import ServerState
from native_engine.tokenizer import TextStream

SSE_HEADERS = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}


def add_native_api(app: FastAPI, state: ServerState) -> None:
    """Route /generate."""

    @app.api_route("/generate", methods=["POST", "PUT"])
    async def generate(http: Request) -> Response:
        call = parse_generate(parse_object(await http.body()), state)
        calls = submit(state, call.requests)
        if call.stream:
            return StreamingResponse(
                _events(calls[0], state), media_type="text/event-stream", headers=SSE_HEADERS
            )
        finished = await results(calls, http)
        replies = [_reply(c, f, state) for c, f in zip(calls, finished, strict=True)]
        return JSONResponse(replies if call.batched else replies[0])


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
    try:
        async for item in call:
            if isinstance(item, Finished):
                yield sse(_reply(call, item, state))
                break
            partial.output_ids.extend(item)
            yield sse(
                {
                    "text": stream.push(item) if stream else "",
                    "output_ids": partial.output_ids,
                    "meta_info": meta_info(call.request, partial, None, state.facts.tree_hash),
                }
            )
    except NativeEngineError as error:
        yield sse(abort_body(error))
    finally:
        call.cancel()
    yield b"data: [DONE]\n\n"


def sse(body: Any) -> bytes:
    return f"data: {json.dumps(body, ensure_ascii=False, separators=(',', ':'))}\n\n".encode()


def abort_body(error: Exception) -> dict[str, Any]:
    """The shape of a request the engine gave up: no tokens to trust, finish reason abort."""
    reason = {"type": "abort", "message": str(error), "status_code": 500}
    return {
        "error": {"message": str(error), "type": type(error).__name__, "code": 500},
        "text": "",
        "output_ids": [],
        "meta_info": {"finish_reason": reason},
    }
