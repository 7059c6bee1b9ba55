"""The FastAPI application: routes, and what each error becomes over HTTP."""

from __future__ import annotations

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from native_engine.errors import BadRequest, NativeEngineError, QueueFull, TooManyRequests
from native_engine.server.admin_api import add_admin_api
from native_engine.server.calls import ClientGone
from native_engine.server.fields import BodyTooLarge
from native_engine.server.native_api import add_native_api
from native_engine.server.openai_api import add_openai_api
from native_engine.server.state import ServerState
from native_engine.server.streaming import abort_body

RETRY_AFTER_S = 1
CLIENT_CLOSED_REQUEST = 499


def create_app(state: ServerState) -> FastAPI:
    """All endpoints over one engine."""
    app = FastAPI(title="native_engine", docs_url=None, redoc_url=None, openapi_url=None)
    add_native_api(app, state)
    add_openai_api(app, state)
    add_admin_api(app, state)

    @app.exception_handler(BadRequest)
    async def bad_request(http: Request, error: BadRequest) -> JSONResponse:
        return _error(400, str(error), "BadRequestError", error.field)

    @app.exception_handler(BodyTooLarge)
    async def body_too_large(http: Request, error: BodyTooLarge) -> JSONResponse:
        return _error(413, str(error), "RequestEntityTooLarge", "body")

    @app.exception_handler(QueueFull)
    @app.exception_handler(TooManyRequests)
    async def retry_later(http: Request, error: NativeEngineError) -> JSONResponse:
        if isinstance(error, QueueFull):
            reply = _error(503, str(error), "ServiceUnavailable")
        else:
            reply = _error(429, str(error), "TooManyRequests", "input_ids")
        reply.headers["Retry-After"] = str(RETRY_AFTER_S)
        return reply

    @app.exception_handler(HTTPException)
    async def no_such_route(http: Request, error: HTTPException) -> JSONResponse:
        reply = _error(error.status_code, f"{http.method} {http.url.path}: {error.detail}", "HTTP")
        reply.headers.update(error.headers or {})
        return reply

    # Exception: whatever a request did, its client gets an answer and the server lives on.
    @app.exception_handler(NativeEngineError)
    @app.exception_handler(Exception)
    async def aborted(http: Request, error: Exception) -> JSONResponse:
        # What is not the engine's own is raised again behind this answer, and that ends the
        # connection: the client must not send its next request on it.
        headers = {} if isinstance(error, NativeEngineError) else {"Connection": "close"}
        return JSONResponse(abort_body(error), status_code=500, headers=headers)

    @app.exception_handler(ClientGone)
    @app.exception_handler(ClientDisconnect)
    async def client_gone(http: Request, error: Exception) -> JSONResponse:
        return _error(CLIENT_CLOSED_REQUEST, "the client went away", "ClientClosedRequest")

    return app


def _error(status: int, message: str, kind: str, field: str | None = None) -> JSONResponse:
    body = {"message": message, "type": kind, "param": field, "code": status}
    return JSONResponse({"error": body}, status_code=status)
