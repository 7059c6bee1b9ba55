"""The subset of the engine HTTP surface a side-by-side needs.

Streams server-sent events with *all* ids so far, as SGLang does; text only in the last event, so
that detokenising does not tax the clock.
"""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Generator, Iterator
from contextlib import closing
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response, StreamingResponse
from starlette.concurrency import iterate_in_threadpool, run_in_threadpool

from .generation import ReferenceModel
from .requests import BadInput, GenerateRequest, check_length, parse


def build_app(
    model: ReferenceModel, tokenizer: Any, info: dict[str, Any], max_total_tokens: int
) -> FastAPI:
    """Routes over a loaded model; `info` is what /server_info states."""
    app = FastAPI(title="transformers reference")

    def answer(request: GenerateRequest) -> Generator[dict[str, Any]]:
        prompt = request.input_ids
        if prompt is None:
            prompt = tuple(tokenizer.encode(request.text))
        check_length(prompt, request.max_new_tokens, model.vocab_size, max_total_tokens)
        stops = () if request.ignore_eos else (*request.stop_token_ids, *model.eos_ids)
        return _events(model, tokenizer, request, prompt, stops)

    @app.exception_handler(BadInput)
    async def refuse(_: Request, error: BadInput) -> Response:
        detail = {"message": str(error), "type": "BadRequestError", "code": 400}
        return JSONResponse({"error": detail}, status_code=400)

    @app.post("/generate")
    async def generate(http: Request) -> Response:
        try:
            body = await http.json()
        except (ValueError, UnicodeDecodeError) as error:
            raise BadInput(f"the body is not JSON: {error}") from None
        request = parse(body)
        events = answer(request)
        if request.stream:
            return StreamingResponse(_sse(events), media_type="text/event-stream")
        return JSONResponse(await run_in_threadpool(_last, events))

    @app.get("/health")
    def health() -> Response:
        return Response(status_code=200)

    @app.get("/health_generate")
    def health_generate() -> Response:
        ok = sum(1 for _ in model.generate((0,), 1, ())) == 1
        return Response(status_code=200 if ok else 503)

    @app.get("/server_info")
    def server_info() -> dict[str, Any]:
        return info

    @app.api_route("/flush_cache", methods=["GET", "POST"])
    def flush_cache() -> Response:
        """Each request has its own KV cache: nothing is left to flush."""
        return Response(status_code=200)

    return app


def _events(
    model: ReferenceModel,
    tokenizer: Any,
    request: GenerateRequest,
    prompt: tuple[int, ...],
    stops: tuple[int, ...],
) -> Generator[dict[str, Any]]:
    """One event a token where streamed; the last says why it ended and holds the text."""
    start = time.perf_counter()
    output: list[int] = []

    def event(finish: dict[str, Any] | None) -> dict[str, Any]:
        return {
            "text": tokenizer.decode(output, skip_special_tokens=True) if finish else "",
            "output_ids": list(output),
            "meta_info": {
                "id": request.rid,
                "finish_reason": finish,
                "prompt_tokens": len(prompt),
                "completion_tokens": len(output),
                "cached_tokens": 0,
                "e2e_latency": time.perf_counter() - start,
            },
        }

    finish: dict[str, Any] = {"type": "length", "length": request.max_new_tokens}
    with closing(model.generate(prompt, request.max_new_tokens, stops)) as tokens:
        for token in tokens:
            output.append(token)
            if token in stops:
                finish = {"type": "stop", "matched": token}
                break
            if len(output) == request.max_new_tokens:
                break
            if request.stream:
                yield event(None)
    yield event(finish)


async def _sse(events: Generator[dict[str, Any]]) -> AsyncIterator[str]:
    try:
        async for event in iterate_in_threadpool(events):
            yield f"data: {json.dumps(event, separators=(',', ':'))}\n\n"
        yield "data: [DONE]\n\n"
    finally:
        # A client that has gone must not keep the one worker thread busy.
        events.close()


def _last(events: Iterator[dict[str, Any]]) -> dict[str, Any]:
    event: dict[str, Any] = {}
    for event in events:  # noqa: B007
        pass
    return event
