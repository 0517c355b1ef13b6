"""ASGI middleware: host check, bearer token, body limit, security headers."""

import asyncio
import hmac
import ipaddress
import re
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

try:
    from starlette.responses import JSONResponse
except ImportError as error:
    raise ImportError("serving requires extra packages: pip install softlook[serve]") from error

from softlook.serve.pages import PAGES, page_response
from softlook.serve.protocol.responses import error_response

if TYPE_CHECKING:
    from softlook.serve.engine.request import ServerLimits  # imports torch

Scope = dict[str, Any]
LOOPBACK_HOSTS = frozenset({"localhost", "127.0.0.1", "::1"})
SECURITY_HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"cache-control", b"no-store"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
CLOSE = {"Connection": "close"}
HOST = re.compile(r"(\[(?P<ip>[^\]]*)\]|(?P<name>[\w.-]+))(:\d{1,5})?", re.ASCII)


class Middleware:
    """Base class. Passes on HTTP and lifespan events; closes websockets."""

    def __init__(self, app: Any) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
        elif scope["type"] == "http":
            await self.http(scope, receive, send)
        else:
            await send({"type": "websocket.close", "code": 1008})

    async def http(self, scope: Scope, receive: Any, send: Any) -> None:
        await self.app(scope, receive, send)


class SecurityHeaders(Middleware):
    """Adds security headers to every response; a page keeps its own content security policy."""

    async def http(self, scope: Scope, receive: Any, send: Any) -> None:
        async def send_with_headers(message: Any) -> None:
            if message["type"] == "http.response.start":
                own = list(message.get("headers", ()))
                names = {name.lower() for name, _ in own}
                message = {**message, "headers": [*own, *(one for one in SECURITY_HEADERS if one[0] not in names)]}
            await send(message)

        await self.app(scope, receive, send_with_headers)


class HostOriginCheck(Middleware):
    """Accepts requests with an allowed Host header and no foreign Origin, against DNS rebinding.

    A website can make a visitor's browser send requests to a server on the same machine, under a host name the
    website's owner points there. IP addresses cannot be pointed anywhere, so `allow_ip_hosts` accepts them all.
    """

    def __init__(self, app: Any, allowed_hosts: Collection[str], *, allow_ip_hosts: bool = False) -> None:
        super().__init__(app)
        self.allowed_hosts = frozenset(name.lower() for name in allowed_hosts) | LOOPBACK_HOSTS
        self.allow_ip_hosts = allow_ip_hosts

    async def http(self, scope: Scope, receive: Any, send: Any) -> None:
        hosts, origins = header_values(scope, b"host"), header_values(scope, b"origin")
        app = self.app
        if len(hosts) != 1 or not self._is_allowed(hosts[0]):
            app = error_response(403, "this host name is not allowed; softlook serve --allowed-hosts adds names")
        elif origins and (len(origins) > 1 or not _is_same_origin(origins[0], hosts[0])):
            app = error_response(403, "requests from other origins are not allowed")
        await app(scope, receive, send)

    def _is_allowed(self, host: str) -> bool:
        name = _host_name(host)
        return name is not None and (name in self.allowed_hosts or (self.allow_ip_hosts and _is_ip_address(name)))


class BearerAuth(Middleware):
    """Requires `Authorization: Bearer TOKEN` on every route. Pages come with status 401 too, and ask for the token."""

    def __init__(self, app: Any, token: str) -> None:
        super().__init__(app)
        self.token = token.encode()

    async def http(self, scope: Scope, receive: Any, send: Any) -> None:
        headers = header_values(scope, b"authorization")
        scheme, _, value = headers[0].partition(" ") if len(headers) == 1 else ("", "", "")
        app = self.app
        if scheme.lower() != "bearer" or not hmac.compare_digest(value.strip().encode("utf-8", "replace"), self.token):
            challenge = {"WWW-Authenticate": "Bearer"}
            app = error_response(401, "a token is required: Authorization: Bearer ...", headers=challenge)
            if scope["method"] == "GET" and scope["path"] in PAGES:
                app = page_response(scope["path"], 401, challenge)
        await app(scope, receive, send)


class BodyLimit(Middleware):
    """Reads the body before the application runs, with limits on its size and on the time it takes."""

    def __init__(self, app: Any, limits: "ServerLimits") -> None:
        super().__init__(app)
        self.limits = limits

    async def http(self, scope: Scope, receive: Any, send: Any) -> None:
        body = await self._read(scope, receive)
        if isinstance(body, bytes):
            await self.app(scope, _replay(body, receive), send)
        else:
            await body(scope, receive, send)

    async def _read(self, scope: Scope, receive: Any) -> bytes | JSONResponse:
        """The whole body, or an error."""
        lengths, limits = header_values(scope, b"content-length"), self.limits
        if any(not length.isdecimal() or len(length) > 15 for length in lengths) or len(lengths) > 1:
            return error_response(400, "the Content-Length header is not a number")
        too_large = f"the request is larger than the maximum of {limits.max_body_bytes:,} bytes"
        if lengths and int(lengths[0]) > limits.max_body_bytes:
            return error_response(413, too_large, headers=CLOSE)
        try:
            async with asyncio.timeout(limits.read_timeout):
                body = await self._read_parts(receive)
        except TimeoutError:
            message = f"the request did not arrive within {limits.read_timeout:g} s"
            return error_response(408, message, headers=CLOSE)
        return error_response(413, too_large, headers=CLOSE) if body is None else body

    async def _read_parts(self, receive: Any) -> bytes | None:
        """The parts of the body, joined; None if it is too large."""
        parts, size = [], 0
        while True:
            message = await receive()
            if message["type"] != "http.request":
                raise TimeoutError  # the client has disconnected
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            if size > self.limits.max_body_bytes:
                return None
            if not message.get("more_body", False):
                return b"".join(parts)


def header_values(scope: Scope, name: bytes) -> list[str]:
    """All values of a header."""
    return [value.decode("latin-1") for key, value in scope["headers"] if key.lower() == name]


def _replay(body: bytes, receive: Any) -> Any:
    """A `receive` that returns the body once, and then whatever follows (the disconnect)."""
    pending = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Any:
        return pending.pop() if pending else await receive()

    return replay


def _host_name(host: str) -> str | None:
    """The name in a Host header, without its port; None if malformed."""
    match = HOST.fullmatch(host)
    if match is None or (match["ip"] is not None and not _is_ip_address(match["ip"])):
        return None
    return (match["ip"] or match["name"]).lower()


def _is_ip_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _is_same_origin(origin: str, host: str) -> bool:
    return origin.lower() in (f"http://{host.lower()}", f"https://{host.lower()}")
