"""The API of the studio as an ASGI application: its routes and error handlers."""

import logging
from collections.abc import Callable, Collection
from typing import Any

from softlook.base.errors import BackendError, ConfigError, DataError, DtypeError, MaskError, ShapeError
from softlook.base.version import VERSION
from softlook.serve.engine.request import ServerLimits
from softlook.serve.middleware import BodyLimit
from softlook.serve.protocol.responses import error_response
from softlook.studio.page import guarded
from softlook.studio.security import Sessions
from softlook.studio.session import Studio, UnknownError

try:
    from fastapi import FastAPI
    from fastapi.exceptions import RequestValidationError
    from starlette.exceptions import HTTPException
    from starlette.responses import Response
except ImportError as error:
    raise ImportError("the studio requires extra packages: pip install softlook[serve]") from error

from softlook.studio.routes import live, runs, traces
from softlook.studio.routes.context import Answers

log = logging.getLogger("softlook.studio")
DESCRIPTION = "Attention of a model: tiles of its maps, statistics, interventions and training runs."
ROUTERS = (traces.router, live.router, runs.router)
LIMITS = ServerLimits()


def create_app(
    studio: Studio,
    sessions: Sessions | None = None,
    *,
    allowed_hosts: Collection[str] = (),
    allow_ip_hosts: bool = False,
) -> "StudioApp":
    """The studio as an ASGI application.

    - `sessions`: who may use it; default: new ones, see `Sessions.new_token`.
    - `allowed_hosts`: allowed host names in addition to localhost; with `allow_ip_hosts`, all IP addresses too.
    """
    sessions, routes = Sessions() if sessions is None else sessions, create_routes(studio)
    hosts: dict[str, Any] = {"allowed_hosts": allowed_hosts, "allow_ip_hosts": allow_ip_hosts}
    return StudioApp(guarded(BodyLimit(routes, LIMITS), sessions, **hosts), routes, sessions)


class StudioApp:
    """The application behind its checks; `routes` is the FastAPI application inside."""

    def __init__(self, checked: Any, routes: FastAPI, sessions: Sessions) -> None:
        self.checked, self.routes, self.sessions = checked, routes, sessions

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await self.checked(scope, receive, send)


def create_api(studio: Studio) -> BodyLimit:
    """The routes under /api, for the page."""
    return BodyLimit(create_routes(studio), LIMITS)


def create_routes(studio: Studio) -> FastAPI:
    """The routes under /api."""
    bare: dict[str, Any] = {"docs_url": None, "redoc_url": None, "redirect_slashes": False}
    app = FastAPI(
        title="softlook studio", version=VERSION, description=DESCRIPTION, openapi_url="/api/openapi.json", **bare
    )
    app.state.studio, app.state.answers = studio, Answers()
    for router in ROUTERS:
        app.include_router(router)
    for error_class, handler in ERROR_HANDLERS.items():
        app.add_exception_handler(error_class, handler)
    return app


def _status(status: int) -> Callable[[Any, Any], Response]:
    """A handler that responds with a status and the message of the error."""

    def handle(request: Any, error: Any) -> Response:
        return error_response(status, str(error)[:500])

    return handle


def _invalid_parameters(request: Any, error: Any) -> Response:
    first = error.errors()[0]
    return error_response(400, f"{'.'.join(map(str, first['loc'][1:]))}: {first['msg']}"[:500])


def _http_exception(request: Any, error: Any) -> Response:
    return error_response(error.status_code, str(error.detail)[:500], headers=error.headers)


def _internal_error(request: Any, error: Any) -> Response:
    log.error("%s: %s", type(error).__name__, error, exc_info=error)
    return error_response(500, "internal error; see the terminal of `softlook studio`")


ERROR_HANDLERS: dict[Any, Any] = {
    RequestValidationError: _invalid_parameters,
    HTTPException: _http_exception,
    UnknownError: _status(404),
    **dict.fromkeys((DataError, ConfigError, ShapeError, MaskError, DtypeError, BackendError), _status(400)),
    Exception: _internal_error,
}
