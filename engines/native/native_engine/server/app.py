"""The FastAPI application: routes, and what each error becomes over HTTP."""

from __future__ import annotations

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse

from native_engine.errors import BadRequest, NativeEngineError, QueueFull
from native_engine.server.admin_api import add_admin_api
from native_engine.server.calls import ClientGone
from native_engine.server.native_api import abort_body, add_native_api
from native_engine.server.openai_api import add_openai_api
from native_engine.server.state import ServerState

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

    @app.exception_handler(QueueFull)
    async def queue_full(http: Request, error: QueueFull) -> JSONResponse:
        reply = _error(503, str(error), "ServiceUnavailable")
        reply.headers["Retry-After"] = str(RETRY_AFTER_S)
        return reply

    @app.exception_handler(NativeEngineError)
    async def aborted(http: Request, error: NativeEngineError) -> JSONResponse:
        return JSONResponse(abort_body(error), status_code=500)

    @app.exception_handler(ClientGone)
    async def client_gone(http: Request, error: ClientGone) -> JSONResponse:
        return _error(CLIENT_CLOSED_REQUEST, "the client went away", "ClientClosedRequest")

    return app


def _error(status: int, message: str, kind: str, field: str | None = None) -> JSONResponse:
    body = {"message": message, "type": kind, "param": field, "code": status}
    return JSONResponse({"error": body}, status_code=status)
