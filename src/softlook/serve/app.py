"""The ASGI application: middleware, routes, error handlers."""

import logging
from collections.abc import Collection
from typing import Any

from softlook.base.errors import ConfigError, DataError, ShapeError, WeightsError
from softlook.base.version import VERSION
from softlook.serve.engine.async_bridge import ClientDisconnectedError
from softlook.serve.engine.engine import EngineStoppedError, QueueFullError
from softlook.serve.engine.scheduler import ModelError, OutOfMemoryError
from softlook.serve.metrics import Metrics, RequestMetrics
from softlook.serve.middleware import BearerAuth, BodyLimit, HostOriginCheck, SecurityHeaders
from softlook.serve.protocol.parsing import BadRequestError, first_error
from softlook.serve.registry import ModelRegistry, UnknownModelError
from softlook.serve.routes import ServerContext, chat, classify, completions, embeddings, models, tables, translate

try:
    from fastapi import FastAPI
    from fastapi.exceptions import RequestValidationError
    from starlette.exceptions import HTTPException
    from starlette.responses import JSONResponse
except ImportError as error:
    raise ImportError("serving requires extra packages: pip install softlook[serve]") from error

log = logging.getLogger("softlook.serve")
DESCRIPTION = "Models behind OpenAI's routes, and routes for translation, classification and tables."
ROUTERS = tuple(module.router for module in (models, completions, chat, embeddings, translate, classify, tables))


def create_app(
    registry: ModelRegistry,
    *,
    token: str | None = None,
    allowed_hosts: Collection[str] = (),
    allow_ip_hosts: bool = False,
) -> Any:
    """The server as an ASGI application. It does not close the registry.

    - `token`: the bearer token required on every route.
    - `allowed_hosts`: allowed host names in addition to localhost; with `allow_ip_hosts`, all IP addresses too.
    """
    metrics = Metrics(registry)
    # No documentation pages, which load scripts from elsewhere, and no redirects, which trust the Host header.
    bare: dict[str, Any] = {"docs_url": None, "redoc_url": None, "redirect_slashes": False}
    app = FastAPI(title="softlook", version=VERSION, description=DESCRIPTION, **bare)
    app.state.context = ServerContext(registry, metrics)
    for router in ROUTERS:
        app.include_router(router)
    _edit_openapi(app, has_token=token is not None)
    for error_class, handler in ERROR_HANDLERS.items():
        app.add_exception_handler(error_class, handler)
    guarded: Any = BodyLimit(app, registry.limits)
    guarded = guarded if token is None else BearerAuth(guarded, token)
    guarded = SecurityHeaders(HostOriginCheck(guarded, allowed_hosts, allow_ip_hosts=allow_ip_hosts))
    return ServerApp(RequestMetrics(guarded, metrics), app)


class ServerApp:
    """The application wrapped in its middleware; `routes` is the FastAPI application inside."""

    def __init__(self, guarded: Any, routes: FastAPI) -> None:
        self.guarded, self.routes = guarded, routes

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await self.guarded(scope, receive, send)

    def openapi(self) -> dict[str, Any]:
        return self.routes.openapi()


def _edit_openapi(app: FastAPI, *, has_token: bool) -> None:
    """Describe status 400 instead of FastAPI's 422, and the bearer token."""
    schema = app.openapi()
    for path in schema["paths"].values():
        for operation in path.values():
            operation["responses"].pop("422", None)
    for name in ("HTTPValidationError", "ValidationError"):
        schema["components"]["schemas"].pop(name, None)
    if has_token:
        schema["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        schema["security"] = [{"token": []}]


def error_response(
    status: int,
    message: str,
    *,
    error_type: str = "invalid_request_error",
    param: str | None = None,
    code: str | None = None,
    headers: dict[str, str] | None = None,
) -> JSONResponse:
    """An error in OpenAI's format."""
    error = {"message": message, "type": error_type, "param": param, "code": code}
    return JSONResponse({"error": error}, status, headers)


def _invalid_parameters(request: Any, error: Any) -> JSONResponse:
    """Errors found by FastAPI itself, in the parameters of a path."""
    return _bad_request(request, first_error(error.errors()))


def _bad_request(request: Any, error: Any) -> JSONResponse:
    return error_response(400, str(error)[:500], param=error.param)


def _invalid_request(request: Any, error: Any) -> JSONResponse:
    return error_response(400, str(error))


def _http_exception(request: Any, error: Any) -> JSONResponse:
    error_type = "not_found_error" if error.status_code == 404 else "invalid_request_error"
    return error_response(error.status_code, str(error.detail)[:500], error_type=error_type, headers=error.headers)


def _unknown_model(request: Any, error: Any) -> JSONResponse:
    return error_response(404, str(error), error_type="not_found_error", code="model_not_found")


def _queue_full(request: Any, error: Any) -> JSONResponse:
    headers = {"Retry-After": str(error.retry_after)}
    return error_response(429, str(error), error_type="rate_limit_error", code="queue_full", headers=headers)


def _unavailable(request: Any, error: Any) -> JSONResponse:
    log.error("status 503: %s", error)
    return error_response(503, str(error), error_type="server_error")


def _model_failed(request: Any, error: Any) -> JSONResponse:
    log.error("status 500: %s", error)
    return error_response(500, str(error), error_type="server_error")


def _disconnected(request: Any, error: Any) -> JSONResponse:
    return error_response(408, "the client has disconnected")


def _internal_error(request: Any, error: Any) -> JSONResponse:
    log.error("%s: %s", type(error).__name__, error, exc_info=error)
    return error_response(500, "internal server error; see the server's log", error_type="server_error")


ERROR_HANDLERS: dict[Any, Any] = {
    RequestValidationError: _invalid_parameters,
    HTTPException: _http_exception,
    UnknownModelError: _unknown_model,
    BadRequestError: _bad_request,
    DataError: _invalid_request,
    ConfigError: _invalid_request,
    ShapeError: _model_failed,
    WeightsError: _model_failed,
    ModelError: _model_failed,
    OutOfMemoryError: _unavailable,
    QueueFullError: _queue_full,
    EngineStoppedError: _unavailable,
    ClientDisconnectedError: _disconnected,
    Exception: _internal_error,
}
