"""The ASGI application of the studio: its page, routes, sessions and error handlers."""

import logging
from collections.abc import Callable, Collection
from importlib.resources import files
from typing import Any

from softlook.base.errors import BackendError, ConfigError, DataError, DtypeError, MaskError, ShapeError
from softlook.base.version import VERSION
from softlook.serve.engine.request import ServerLimits
from softlook.serve.middleware import BodyLimit, HostOriginCheck, SecurityHeaders
from softlook.serve.protocol.responses import error_response
from softlook.studio.security import POLICY, REFUSED, SessionCheck, Sessions
from softlook.studio.session import Studio, UnknownError

try:
    from fastapi import FastAPI, Request
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
STATIC = {
    "/studio.js": ("studio.js", "text/javascript; charset=utf-8"),
    "/studio.css": ("studio.css", "text/css; charset=utf-8"),
}
"""Files of the page: name and media type by path."""
PAGE_HEADERS = {"content-security-policy": POLICY, "cache-control": "no-cache"}
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
    sessions = Sessions() if sessions is None else sessions
    bare: dict[str, Any] = {"docs_url": None, "redoc_url": None, "redirect_slashes": False}
    app = FastAPI(
        title="softlook studio", version=VERSION, description=DESCRIPTION, openapi_url="/api/openapi.json", **bare
    )
    app.state.studio, app.state.answers = studio, Answers()
    for router in ROUTERS:
        app.include_router(router)
    app.add_api_route("/", _page(sessions), include_in_schema=False)
    for path, (name, media_type) in STATIC.items():
        app.add_api_route(path, _file(name, media_type), include_in_schema=False)
    for error_class, handler in ERROR_HANDLERS.items():
        app.add_exception_handler(error_class, handler)
    guarded: Any = SessionCheck(BodyLimit(app, LIMITS), sessions)
    checked = HostOriginCheck(guarded, allowed_hosts, allow_ip_hosts=allow_ip_hosts)
    return StudioApp(SecurityHeaders(checked), app, sessions)


class StudioApp:
    """The application wrapped in its middleware; `routes` is the FastAPI application inside."""

    def __init__(self, guarded: Any, routes: FastAPI, sessions: Sessions) -> None:
        self.guarded, self.routes, self.sessions = guarded, routes, sessions

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await self.guarded(scope, receive, send)


def static_file(name: str) -> str:
    """A file of the page, from the package."""
    return (files("softlook.studio") / "static" / name).read_text(encoding="utf-8")


def _page(sessions: Sessions) -> Callable[..., Any]:
    async def page(request: Request, token: str | None = None) -> Response:
        """The page; with the token of a link, and the cookie of a session."""
        headers = dict(PAGE_HEADERS)
        is_open = sessions.is_open(dict(request.scope))
        cookie = sessions.exchange(token) if token is not None and not is_open else None
        if cookie is not None:
            headers["set-cookie"] = cookie
        elif not is_open:
            return error_response(401, REFUSED)
        return Response(static_file("index.html"), headers=headers, media_type="text/html; charset=utf-8")

    return page


def _file(name: str, media_type: str) -> Callable[..., Any]:
    async def send() -> Response:
        return Response(static_file(name), headers=PAGE_HEADERS, media_type=media_type)

    return send


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
