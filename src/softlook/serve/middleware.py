"""ASGI middleware: host check, bearer token, body limit, security headers."""

import asyncio
import hmac
import ipaddress
import json
from collections.abc import Collection
from typing import Any

from softlook.serve.limits import ServerLimits

Scope = dict[str, Any]
LOOPBACK_HOSTS = frozenset({"localhost", "127.0.0.1", "::1"})
SECURITY_HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"cache-control", b"no-store"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
)


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
    """Adds security headers to every response."""

    async def http(self, scope: Scope, receive: Any, send: Any) -> None:
        async def send_with_headers(message: Any) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message.get("headers", ()), *SECURITY_HEADERS]}
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
        if len(hosts) != 1 or not self._is_allowed(hosts[0]):
            await send_error(send, 403, "this host name is not allowed; softlook serve --allowed-hosts adds names")
        elif origins and (len(origins) > 1 or origins[0].lower() not in _own_origins(hosts[0])):
            await send_error(send, 403, "requests from other origins are not allowed")
        else:
            await self.app(scope, receive, send)

    def _is_allowed(self, host: str) -> bool:
        name = _host_name(host)
        return name is not None and (name in self.allowed_hosts or (self.allow_ip_hosts and _is_ip_address(name)))


class BearerAuth(Middleware):
    """Requires `Authorization: Bearer TOKEN` on every route."""

    def __init__(self, app: Any, token: str) -> None:
        super().__init__(app)
        self.token = token.encode()

    async def http(self, scope: Scope, receive: Any, send: Any) -> None:
        headers = header_values(scope, b"authorization")
        scheme, _, value = headers[0].partition(" ") if len(headers) == 1 else ("", "", "")
        if scheme.lower() == "bearer" and hmac.compare_digest(value.strip().encode("utf-8", "replace"), self.token):
            await self.app(scope, receive, send)
        else:
            challenge = ((b"www-authenticate", b"Bearer"),)
            await send_error(send, 401, "a token is required: Authorization: Bearer ...", headers=challenge)


class BodyLimit(Middleware):
    """Reads the body before the application runs, with limits on its size and on the time it takes."""

    def __init__(self, app: Any, limits: ServerLimits) -> None:
        super().__init__(app)
        self.limits = limits

    async def http(self, scope: Scope, receive: Any, send: Any) -> None:
        lengths = header_values(scope, b"content-length")
        if any(not length.isdecimal() or len(length) > 15 for length in lengths) or len(lengths) > 1:
            return await send_error(send, 400, "the Content-Length header is not a number")
        if lengths and int(lengths[0]) > self.limits.max_body_bytes:
            return await self._send_too_large(send)
        timeout = self.limits.read_timeout
        try:
            async with asyncio.timeout(timeout):
                body = await self._read(receive)
        except TimeoutError:
            return await send_error(send, 408, f"the request did not arrive within {timeout:g} s", close=True)
        if body is None:
            return await self._send_too_large(send)
        return await self.app(scope, _replay(body, receive), send)

    async def _send_too_large(self, send: Any) -> None:
        limit = self.limits.max_body_bytes
        await send_error(send, 413, f"the request is larger than the maximum of {limit:,} bytes", close=True)

    async def _read(self, receive: Any) -> bytes | None:
        """The whole body; None if it is too large."""
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


async def send_error(
    send: Any,
    status: int,
    message: str,
    *,
    headers: Collection[tuple[bytes, bytes]] = (),
    close: bool = False,
) -> None:
    """Send an error response in OpenAI's format."""
    types = {401: "authentication_error", 403: "permission_error", 408: "timeout_error"}
    error = {"message": message, "type": types.get(status, "invalid_request_error"), "param": None, "code": None}
    body = json.dumps({"error": error}).encode()
    all_headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode()), *headers]
    all_headers += [(b"connection", b"close")] if close else []
    await send({"type": "http.response.start", "status": status, "headers": all_headers})
    await send({"type": "http.response.body", "body": body})


def _replay(body: bytes, receive: Any) -> Any:
    """A `receive` that returns the body once, and then whatever follows (the disconnect)."""
    sent = False

    async def replay() -> Any:
        nonlocal sent
        if sent:
            return await receive()
        sent = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay


def _host_name(host: str) -> str | None:
    """The name in a Host header, without its port; None if malformed."""
    if host.startswith("["):
        name, bracket, port = host[1:].partition("]")
        is_valid = bracket and _is_port(port.removeprefix(":"), port) and _is_ip_address(name)
        return name.lower() if is_valid else None
    name, _, port = host.partition(":")
    is_valid = name and name.isascii() and all(letter.isalnum() or letter in ".-_" for letter in name)
    return name.lower() if is_valid and _is_port(port, host[len(name) :]) else None


def _is_port(port: str, suffix: str) -> bool:
    return not suffix or (suffix.startswith(":") and port.isdecimal() and len(port) <= 5)


def _is_ip_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _own_origins(host: str) -> frozenset[str]:
    return frozenset({f"http://{host.lower()}", f"https://{host.lower()}"})
