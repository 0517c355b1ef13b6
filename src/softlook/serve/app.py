"""The ASGI application: middleware, routes, error handlers."""

import logging
from collections.abc import Callable, Collection
from typing import Any

from softlook.base.errors import ConfigError, DataError, ShapeError, WeightsError
from softlook.base.version import VERSION
from softlook.serve.engine.engine import ClientDisconnectedError, EngineStoppedError, QueueFullError
from softlook.serve.engine.scheduler import ModelError, OutOfMemoryError
from softlook.serve.metrics import Metrics, RequestMetrics
from softlook.serve.middleware import BearerAuth, BodyLimit, HostOriginCheck, SecurityHeaders
from softlook.serve.protocol.parsing import BadRequestError, first_error
from softlook.serve.protocol.responses import error_response
from softlook.serve.registry import ModelRegistry, UnknownModelError
from softlook.serve.routes import ServerContext, completions, encoders, images, models, pages, tables, translate

try:
    from fastapi import FastAPI
    from fastapi.exceptions import RequestValidationError
    from starlette.exceptions import HTTPException
    from starlette.responses import JSONResponse
except ImportError as error:
    raise ImportError("serving requires extra packages: pip install softlook[serve]") from error

log = logging.getLogger("softlook.serve")
DESCRIPTION = "Models behind OpenAI's routes, and routes for translation, classification, tables and images."
ROUTERS = tuple(module.router for module in (pages, models, completions, encoders, translate, tables, images))


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
    # FastAPI's documentation pages load scripts from elsewhere; its redirects trust the Host header.
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


def _status(status: int, code: str | None = None) -> Callable[[Any, Any], JSONResponse]:
    """A handler that responds with a status and the message of the error."""

    def handle(request: Any, error: Any) -> JSONResponse:
        if status >= 500:
            log.error("status %d: %s", status, error)
        return error_response(status, str(error), code=code)

    return handle


def _bad_request(request: Any, error: Any) -> JSONResponse:
    return error_response(400, str(error)[:500], param=error.param)


def _invalid_parameters(request: Any, error: Any) -> JSONResponse:
    """Errors found by FastAPI itself, in the parameters of a path."""
    return _bad_request(request, first_error(error.errors()))


def _http_exception(request: Any, error: Any) -> JSONResponse:
    return error_response(error.status_code, str(error.detail)[:500], headers=error.headers)


def _queue_full(request: Any, error: Any) -> JSONResponse:
    return error_response(429, str(error), code="queue_full", headers={"Retry-After": str(error.retry_after)})


def _disconnected(request: Any, error: Any) -> JSONResponse:
    return error_response(408, "the client has disconnected")


def _internal_error(request: Any, error: Any) -> JSONResponse:
    log.error("%s: %s", type(error).__name__, error, exc_info=error)
    return error_response(500, "internal server error; see the server's log")


ERROR_HANDLERS: dict[Any, Any] = {
    RequestValidationError: _invalid_parameters,
    HTTPException: _http_exception,
    UnknownModelError: _status(404, "model_not_found"),
    BadRequestError: _bad_request,
    DataError: _status(400),
    ConfigError: _status(400),
    ShapeError: _status(500),
    WeightsError: _status(500),
    ModelError: _status(500),
    OutOfMemoryError: _status(503),
    QueueFullError: _queue_full,
    EngineStoppedError: _status(503),
    ClientDisconnectedError: _disconnected,
    Exception: _internal_error,
}
