"""The whole server: guards, then pages, then workers."""

import logging
from collections.abc import Collection
from typing import Any

from softlook.base.errors import ConfigError, DataError, ShapeError, WeightsError
from softlook.base.version import VERSION
from softlook.serve import predicting as predicting  # its pages come to the router
from softlook.serve import texts as texts
from softlook.serve import translating as translating
from softlook.serve.engine import BrokenError, BusyError
from softlook.serve.guards import Body, Names, SafeHeaders, Token
from softlook.serve.hall import Hall, UnknownModelError
from softlook.serve.metrics import Counting, Metrics
from softlook.serve.pages import Counter, router
from softlook.serve.parsing import BadRequestError, first_fault
from softlook.serve.recovery import ModelError, OutOfMemoryError
from softlook.serve.waiting import GoneError

try:
    from fastapi import FastAPI
    from fastapi.exceptions import RequestValidationError
    from starlette.exceptions import HTTPException
    from starlette.responses import JSONResponse
except ImportError as fault:
    raise ImportError("to serve, install what a server needs: pip install softlook[serve]") from fault

log = logging.getLogger("softlook.serve")
ABOUT = "Models behind OpenAI's routes, and a few of their own."


def make_app(hall: Hall, *, token: str | None = None, names: Collection[str] = (), numbers: bool = False) -> Any:
    """The server as an ASGI application. The hall's workers outlive it: whoever made the hall closes it.

    - `token`: what every request has to bring, to whatever page.
    - `names`: what the server is called, beside localhost; with `numbers`, every address that is a number too.
    """
    metrics = Metrics(hall)

    # No pages of its own, which would fetch scripts from elsewhere, and no redirects, which would trust a Host header.
    bare: dict[str, Any] = {"docs_url": None, "redoc_url": None, "redirect_slashes": False}
    app = FastAPI(title="softlook", version=VERSION, description=ABOUT, **bare)
    app.state.counter = Counter(hall, metrics)
    app.include_router(router)
    _describe(app, secured=token is not None)
    for kind, answer in FAULTS.items():
        app.add_exception_handler(kind, answer)
    guarded: Any = Body(app, hall.limits)
    guarded = guarded if token is None else Token(guarded, token)
    return Whole(Counting(SafeHeaders(Names(guarded, names, numbers=numbers)), metrics), app)


class Whole:
    """The application behind all its guards; `pages` is what lies behind them."""

    def __init__(self, guarded: Any, pages: FastAPI) -> None:
        self.guarded, self.pages = guarded, pages

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await self.guarded(scope, receive, send)

    def openapi(self) -> dict[str, Any]:
        return self.pages.openapi()


def _describe(app: FastAPI, *, secured: bool) -> None:
    """Pages answer with 400 where FastAPI would say 422; the description says so too."""
    described = app.openapi()
    for page in described["paths"].values():
        for operation in page.values():
            operation["responses"].pop("422", None)
    for name in ("HTTPValidationError", "ValidationError"):
        described["components"]["schemas"].pop(name, None)
    if secured:
        described["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        described["security"] = [{"token": []}]


def refused(
    status: int,
    message: str,
    *,
    kind: str = "invalid_request_error",
    param: str | None = None,
    code: str | None = None,
    headers: dict[str, str] | None = None,
) -> JSONResponse:
    """OpenAI's shape of an error."""
    fault = {"message": message, "type": kind, "param": param, "code": code}
    return JSONResponse({"error": fault}, status, headers)


def _wrong(request: Any, fault: Any) -> JSONResponse:
    """What FastAPI itself finds wrong: the parameters in an address."""
    return _bad(request, first_fault(fault.errors()))


def _bad(request: Any, fault: Any) -> JSONResponse:
    return refused(400, str(fault)[:500], param=fault.param)


def _plain(request: Any, fault: Any) -> JSONResponse:
    kinds = {404: "not_found_error"}
    kind = kinds.get(fault.status_code, "invalid_request_error")
    return refused(fault.status_code, str(fault.detail)[:500], kind=kind, headers=fault.headers)


def _busy(request: Any, fault: Any) -> JSONResponse:
    after = {"Retry-After": str(fault.seconds)}
    return refused(429, str(fault), kind="rate_limit_error", code="queue_full", headers=after)


def _broken(request: Any, fault: Any) -> JSONResponse:
    log.error("answered with 503: %s", fault)
    return refused(503, str(fault), kind="server_error")


def _failed(request: Any, fault: Any) -> JSONResponse:
    log.error("answered with 500: %s", fault)
    return refused(500, str(fault), kind="server_error")


def _gone(request: Any, fault: Any) -> JSONResponse:
    return refused(408, "the client has gone")


def _unforeseen(request: Any, fault: Any) -> JSONResponse:
    log.error("%s: %s", type(fault).__name__, fault, exc_info=fault)
    return refused(500, "this is a fault of the server's own; its log says more", kind="server_error")


FAULTS: dict[Any, Any] = {
    RequestValidationError: _wrong,
    HTTPException: _plain,
    UnknownModelError: lambda request, fault: refused(404, str(fault), kind="not_found_error", code="model_not_found"),
    BadRequestError: _bad,
    DataError: lambda request, fault: refused(400, str(fault)),
    ConfigError: lambda request, fault: refused(400, str(fault)),
    ShapeError: _failed,
    WeightsError: _failed,
    ModelError: _failed,
    OutOfMemoryError: _broken,
    BusyError: _busy,
    BrokenError: _broken,
    GoneError: _gone,
    Exception: _unforeseen,
}
