"""What stands before every page. Each guard sees every request, whatever its path: what is not allowed is refused."""

import asyncio
import hmac
import ipaddress
import json
from collections.abc import Collection
from typing import Any

from softlook.serve.limits import Limits

Scope = dict[str, Any]
LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
SAFE = (
    (b"x-content-type-options", b"nosniff"),
    (b"cache-control", b"no-store"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
)


class Guard:
    """Passes requests on, or not. Only HTTP comes by here, and the server's own start and end."""

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


class SafeHeaders(Guard):
    """Tells browsers to make nothing of an answer but what it is."""

    async def http(self, scope: Scope, receive: Any, send: Any) -> None:
        async def told(message: Any) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message.get("headers", ()), *SAFE]}
            await send(message)

        await self.app(scope, receive, told)


class Names(Guard):
    """The server answers to its own names only, and to no page of another site.

    A page that somebody visits can make a browser ask a server on the same machine, under a name that the page's owner
    has pointed there. Numbers cannot be pointed anywhere, so `numbers` lets them all pass.
    """

    def __init__(self, app: Any, names: Collection[str], *, numbers: bool = False) -> None:
        super().__init__(app)
        self.names, self.numbers = frozenset(name.lower() for name in names) | LOOPBACK, numbers

    async def http(self, scope: Scope, receive: Any, send: Any) -> None:
        hosts, origins = values(scope, b"host"), values(scope, b"origin")
        if len(hosts) != 1 or not self._is_ours(hosts[0]):
            await refuse(send, 403, "this server does not answer to that name; softlook serve --names adds names")
        elif origins and (len(origins) > 1 or origins[0].lower() not in _origins(hosts[0])):
            await refuse(send, 403, "this server does not answer pages of other sites")
        else:
            await self.app(scope, receive, send)

    def _is_ours(self, host: str) -> bool:
        name = _name_in(host)
        return name is not None and (name in self.names or (self.numbers and _is_number(name)))


class Token(Guard):
    """Nobody passes without the token, to whatever page."""

    def __init__(self, app: Any, token: str) -> None:
        super().__init__(app)
        self.token = token.encode()

    async def http(self, scope: Scope, receive: Any, send: Any) -> None:
        told = values(scope, b"authorization")
        kind, _, value = told[0].partition(" ") if len(told) == 1 else ("", "", "")
        if kind.lower() == "bearer" and hmac.compare_digest(value.strip().encode("utf-8", "replace"), self.token):
            await self.app(scope, receive, send)
        else:
            wanted = ((b"www-authenticate", b"Bearer"),)
            await refuse(send, 401, "a token is wanted: Authorization: Bearer ...", headers=wanted)


class Body(Guard):
    """Reads a request before anybody looks at it: no more than so many bytes, in no more than so many seconds."""

    def __init__(self, app: Any, limits: Limits) -> None:
        super().__init__(app)
        self.limits = limits

    async def http(self, scope: Scope, receive: Any, send: Any) -> None:
        told = values(scope, b"content-length")
        if any(not length.isdecimal() or len(length) > 15 for length in told) or len(told) > 1:
            return await refuse(send, 400, "the length of the request is not a number")
        if told and int(told[0]) > self.limits.body:
            return await self._too_large(send)
        try:
            async with asyncio.timeout(self.limits.reading):
                body = await self._read(receive)
        except TimeoutError:
            return await refuse(send, 408, f"the request did not arrive within {self.limits.reading:g} s", closing=True)
        if body is None:
            return await self._too_large(send)
        return await self.app(scope, _again(body, receive), send)

    async def _too_large(self, send: Any) -> None:
        await refuse(send, 413, f"a request has at most {self.limits.body:,} bytes", closing=True)

    async def _read(self, receive: Any) -> bytes | None:
        """All of it; None where it is too large."""
        parts, size = [], 0
        while True:
            message = await receive()
            if message["type"] != "http.request":
                raise TimeoutError  # the client has gone, and nobody will read the answer
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            if size > self.limits.body:
                return None
            if not message.get("more_body", False):
                return b"".join(parts)


def values(scope: Scope, name: bytes) -> list[str]:
    """What a request says under a header, as often as it says it."""
    return [value.decode("latin-1") for key, value in scope["headers"] if key.lower() == name]


async def refuse(
    send: Any,
    status: int,
    message: str,
    *,
    headers: Collection[tuple[bytes, bytes]] = (),
    closing: bool = False,
) -> None:
    """An answer in OpenAI's shape for what was not let through."""
    kinds = {401: "authentication_error", 403: "permission_error", 408: "timeout_error"}
    fault = {"message": message, "type": kinds.get(status, "invalid_request_error"), "param": None, "code": None}
    body = json.dumps({"error": fault}).encode()
    told = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode()), *headers]
    told += [(b"connection", b"close")] if closing else []
    await send({"type": "http.response.start", "status": status, "headers": told})
    await send({"type": "http.response.body", "body": body})


def _again(body: bytes, receive: Any) -> Any:
    """The body once more, and then whatever comes: that the client has gone."""
    given = False

    async def again() -> Any:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again


def _name_in(host: str) -> str | None:
    """The name in a Host header, without its port; None where it is none."""
    if host.startswith("["):
        name, bracket, port = host[1:].partition("]")
        return name.lower() if bracket and _is_port(port.removeprefix(":"), port) and _is_number(name) else None
    name, _, port = host.partition(":")
    fine = name and name.isascii() and all(letter.isalnum() or letter in ".-_" for letter in name)
    return name.lower() if fine and _is_port(port, host[len(name) :]) else None


def _is_port(port: str, behind: str) -> bool:
    return not behind or (behind.startswith(":") and port.isdecimal() and len(port) <= 5)


def _is_number(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _origins(host: str) -> frozenset[str]:
    return frozenset({f"http://{host.lower()}", f"https://{host.lower()}"})
