"""OpenAI's API: /v1/models, /v1/completions, /v1/chat/completions, streamed or not."""

from __future__ import annotations

import time
import uuid
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response

from native_engine.errors import BadRequest
from native_engine.requests import GenerateRequest, GenerateResult
from native_engine.server import parameters
from native_engine.server.calls import Call, Finished, results, submit
from native_engine.server.fields import Fields, read_fields
from native_engine.server.native_reply import visible_text
from native_engine.server.native_request import build_request
from native_engine.server.parameters import MESSAGE, STREAM_OPTIONS, Parameters
from native_engine.server.state import ServerState
from native_engine.server.streaming import EventStream, sse
from native_engine.tokenizer import TextStream, Tokenizer


@dataclass(frozen=True)
class Style:
    """How the two endpoints differ: the id's prefix, the objects' names whole and in part, the
    prompt's, what may be asked."""

    prefix: str
    whole: str
    part: str
    prompt: str
    accepts: Parameters

    def choice(self, text: str, reason: str | None, **chat: dict[str, str]) -> dict[str, Any]:
        """The only choice: `text` of a completion, a chat's `message` or `delta`."""
        body: Mapping[str, Any] = chat if self is CHAT else {"text": text, "logprobs": None}
        return {"index": 0, **body, "finish_reason": reason}


CHAT = Style("chatcmpl", "chat.completion", "chat.completion.chunk", "messages", parameters.CHAT)
COMPLETION = Style("cmpl", "text_completion", "text_completion", "prompt", parameters.COMPLETION)


def add_openai_api(app: FastAPI, state: ServerState) -> None:
    """Route /v1/*."""

    @app.get("/v1/models")
    async def models() -> dict[str, Any]:
        card = {
            "id": state.facts.served_model_name,
            "object": "model",
            "created": int(state.started),
            "owned_by": "native_engine",
            "max_model_len": state.facts.max_total_tokens,
        }
        return {"object": "list", "data": [card]}

    @app.post("/v1/completions")
    async def completions(http: Request) -> Response:
        return await _answer(http, state, COMPLETION)

    @app.post("/v1/chat/completions")
    async def chat(http: Request) -> Response:
        return await _answer(http, state, CHAT)


async def _answer(http: Request, state: ServerState, style: Style) -> Response:
    fields = await read_fields(http, state.facts.max_body_bytes)
    style.accepts.check(fields, sampled=state.batch is not None)
    ids = _chat_ids(fields, state) if style is CHAT else _prompt_ids(fields, state)
    request = _request(state, fields, ids, style)
    stream = fields.flag("stream")
    options = fields.table("stream_options")
    STREAM_OPTIONS.check(options)
    usage = options.flag("include_usage")
    head = {"id": request.id, "created": int(time.time()), "model": state.facts.served_model_name}
    if state.replayed:
        head["replayed"] = True
    call = submit(state, (request,))[0]
    if stream:
        return EventStream(call, _events(call, state, head, style, usage))
    result = (await results([call], http))[0].result
    text = _tokenizer(state, "prompt").decode(result.output_ids)
    text = visible_text(request, result, text)
    message = {"role": "assistant", "content": text}
    choice = style.choice(text, (result.finish or {}).get("type"), message=message)
    return JSONResponse(
        {**head, "object": style.whole, "choices": [choice], "usage": _usage(request, result)}
    )


async def _events(
    call: Call, state: ServerState, head: dict[str, Any], style: Style, with_usage: bool
) -> AsyncIterator[bytes]:
    tokenizer = _tokenizer(state, "prompt")
    stream = TextStream(tokenizer)
    sent = 0

    def chunk(text: str, delta: dict[str, str], reason: str | None = None) -> bytes:
        choice = style.choice(text, reason, delta=delta)
        return sse({**head, "object": style.part, "choices": [choice]})

    if style is CHAT:
        yield chunk("", {"role": "assistant", "content": ""})
    async for item in call:
        if isinstance(item, Finished):
            text = tokenizer.decode(item.result.output_ids)
            rest = visible_text(call.request, item.result, text)[sent:]
            if rest:
                yield chunk(rest, {"content": rest})
            yield chunk("", {}, (item.result.finish or {}).get("type"))
            if with_usage:
                usage = _usage(call.request, item.result)
                yield sse({**head, "object": style.part, "choices": [], "usage": usage})
            return
        text = stream.push(item)
        safe = safe_length(text, call.request.stop_texts)
        if safe > sent:
            yield chunk(text[sent:safe], {"content": text[sent:safe]})
            sent = safe


def safe_length(text: str, stops: tuple[str, ...]) -> int:
    """How much of `text` can be sent: a tail that may grow into a stop string waits."""
    held = 0
    for stop in stops:
        for size in range(min(len(stop), len(text)), held, -1):
            if text.endswith(stop[:size]):
                held = size
                break
    return len(text) - held


def _request(
    state: ServerState, fields: Fields, ids: tuple[int, ...], style: Style
) -> GenerateRequest:
    fields.text("model")
    limit, newer = state.facts.max_total_tokens, "max_completion_tokens"
    name = "max_tokens" if fields.raw.get(newer) is None else newer
    room = max(1, limit - len(ids))
    count = fields.integer(name, room if style is CHAT else min(16, room), 1, limit)
    identity = f"{style.prefix}-{uuid.uuid4().hex}"
    return build_request(state, ids, fields, identity, count, names=(style.prompt, name))


def _prompt_ids(fields: Fields, state: ServerState) -> tuple[int, ...]:
    prompt = fields.raw.get("prompt")
    if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], str):
        prompt = prompt[0]
    if isinstance(prompt, str) and prompt:
        return tuple(_tokenizer(state, "prompt").encode(prompt))
    if isinstance(prompt, list) and prompt:
        return fields.check_ids("prompt", prompt, state.vocab_size)
    raise BadRequest("prompt", "a non-empty string or one list of token ids is needed")


def _chat_ids(fields: Fields, state: ServerState) -> tuple[int, ...]:
    messages = fields.raw.get("messages")
    if not isinstance(messages, list) or not messages:
        raise BadRequest("messages", "a non-empty list is needed")
    plain = []
    for i, message in enumerate(messages):
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            raise BadRequest(f"messages[{i}]", "an object with role and content is needed")
        MESSAGE.check(Fields(message, f"messages[{i}]."))
        content = message.get("content")
        if isinstance(content, list):
            parts: list[Any] = [p.get("text") if isinstance(p, dict) else None for p in content]
            content = "".join(parts) if all(isinstance(text, str) for text in parts) else None
        if not isinstance(content, str):
            raise BadRequest(f"messages[{i}].content", "text is needed")
        plain.append({"role": message["role"], "content": content})
    return tuple(_tokenizer(state, "messages").chat(plain))


def _tokenizer(state: ServerState, field: str) -> Tokenizer:
    if state.tokenizer is None:
        raise BadRequest(field, "this server has no tokenizer; use /generate with input_ids")
    return state.tokenizer


def _usage(request: GenerateRequest, result: GenerateResult) -> dict[str, int]:
    prompt, output = len(request.prompt_ids), len(result.output_ids)
    return {"prompt_tokens": prompt, "completion_tokens": output, "total_tokens": prompt + output}
