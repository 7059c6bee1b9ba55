"""A request's body as a JSON object, bounded in size before it is parsed."""

from __future__ import annotations

import json
from typing import Any

from fastapi import Request

from native_engine.errors import BadRequest, NativeEngineError

# 128 prompts of 2,048 ids are 2 MB; the launch flag --max-body-bytes sets another limit.
MAX_BODY_BYTES = 16 * 2**20


class BodyTooLarge(NativeEngineError):
    """The body is longer than this server reads (HTTP 413)."""


async def read_object(http: Request, limit: int) -> dict[str, Any]:
    """The body of `http` as a JSON object; of a longer one than `limit` bytes the rest is not kept.

    Raises BodyTooLarge, or BadRequest for what is no JSON object."""
    body = bytearray()
    async for chunk in http.stream():
        body += chunk
        if len(body) > limit:
            raise BodyTooLarge(
                f"body: longer than {limit} bytes; send fewer prompts a request, or start the "
                "server with a larger --max-body-bytes"
            )
    try:
        value = json.loads(bytes(body))
    except RecursionError as error:
        raise BadRequest("body", "nested too deeply") from error
    except ValueError as error:
        raise BadRequest("body", f"not valid JSON: {error}") from error
    if not isinstance(value, dict):
        raise BadRequest("body", "a JSON object is needed")
    return value
