"""The page of the studio and its files, in front of the API. They need neither torch nor a model."""

import asyncio
import threading
from collections.abc import Callable, Collection
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import Response

from softlook.serve.middleware import HostOriginCheck, Middleware, Scope, SecurityHeaders
from softlook.serve.protocol.responses import error_response
from softlook.studio.security import POLICY, REFUSED, SessionCheck, Sessions

if TYPE_CHECKING:
    from softlook.studio.session import Studio  # imports torch

PACKAGE = files("softlook.studio")
STATIC = {
    "/studio.js": ("studio.js", "text/javascript; charset=utf-8"),
    "/studio.css": ("studio.css", "text/css; charset=utf-8"),
}
"""Files of the page: name and media type by path."""
PAGE_HEADERS = {"content-security-policy": POLICY, "cache-control": "no-cache"}
CONFIG = '{"transport":"http"}'
"""The configuration in index.html."""


def guarded(
    api: Any,
    sessions: Sessions,
    recording: str | None = None,
    *,
    allowed_hosts: Collection[str] = (),
    allow_ip_hosts: bool = False,
) -> Any:
    """The page in front of an API, and the checks in front of both.

    - `recording`: what the page shows until the API answers, as JSON of a single file's recording.
    - `allowed_hosts`: allowed host names in addition to localhost; with `allow_ip_hosts`, all IP addresses too.
    """
    page = StudioPage(SessionCheck(api, sessions), sessions, recording)
    return SecurityHeaders(HostOriginCheck(page, allowed_hosts, allow_ip_hosts=allow_ip_hosts))


class StudioPage(Middleware):
    """Answers requests for the page and its files; all others go to the API."""

    def __init__(self, api: Any, sessions: Sessions, recording: str | None = None) -> None:
        super().__init__(api)
        self.sessions, self.recording = sessions, recording

    async def __call__(self, scope: Scope, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await _lifespan(receive, send)  # the API has none, and need not be there yet
        else:
            await super().__call__(scope, receive, send)

    async def http(self, scope: Scope, receive: Any, send: Any) -> None:
        respond = self._page if scope["path"] == "/" else _file if scope["path"] in STATIC else None
        app = self.app if respond is None or scope["method"] not in ("GET", "HEAD") else respond(scope)
        await app(scope, receive, send)

    def _page(self, scope: Scope) -> Response:
        """The page; with the token of a link, and the cookie of a session."""
        headers, token = dict(PAGE_HEADERS), Request(scope).query_params.get("token")
        is_open = self.sessions.is_open(scope)
        cookie = self.sessions.exchange(token) if token is not None and not is_open else None
        if cookie is not None:
            headers["set-cookie"] = cookie
        elif not is_open:
            return error_response(401, REFUSED)
        return Response(index_page(self.recording), headers=headers, media_type="text/html; charset=utf-8")


class DeferredApi:
    """The API of a studio, imported and built when it is first needed: importing torch takes a second or more."""

    def __init__(self, open_studio: "Callable[[], Studio]") -> None:
        self.open_studio = open_studio
        self.studio: Studio | None = None
        self._app: Any = None
        self._lock = threading.Lock()

    def load(self) -> Any:
        """The API as an ASGI application."""
        with self._lock:
            if self._app is None:
                from softlook.studio.app import create_api  # noqa: PLC0415  (imports torch)

                self.studio = self.open_studio()
                self._app = create_api(self.studio)
            return self._app

    def close(self) -> None:
        if self.studio is not None:
            self.studio.close()

    async def __call__(self, scope: Scope, receive: Any, send: Any) -> None:
        app = self._app or await asyncio.to_thread(self.load)
        await app(scope, receive, send)


def static_file(name: str) -> str:
    """A file of the page, from the package."""
    return (PACKAGE / "static" / name).read_text(encoding="utf-8")


def example_recording() -> str:
    """The recording that ships with the package, as JSON for the page."""
    return (PACKAGE / "recordings" / "date.page.json").read_text(encoding="utf-8")


def index_page(recording: str | None = None) -> str:
    """The HTML of the page, with a recording that it shows until the API answers."""
    page = static_file("index.html")
    return page if recording is None else page.replace(CONFIG, f'{CONFIG[:-1]},"recording":{recording}}}')


def _file(scope: Scope) -> Response:
    name, media_type = STATIC[scope["path"]]
    return Response(static_file(name), headers=PAGE_HEADERS, media_type=media_type)


async def _lifespan(receive: Any, send: Any) -> None:
    for phase in ("startup", "shutdown"):
        await receive()
        await send({"type": f"lifespan.{phase}.complete"})
