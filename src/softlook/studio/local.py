"""Requests to the studio's routes within the process, for a notebook: the same answers as over HTTP."""

import asyncio
import json
from collections.abc import Callable
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode


class LocalResponse(NamedTuple):
    """The answer to a request."""

    status: int
    media_type: str
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


def request(
    app: Any,
    method: str,
    path: str,
    query: dict[str, Any] | None = None,
    body: Any = None,
    on_part: Callable[[bytes], None] | None = None,
) -> LocalResponse:
    """Answer one request by an ASGI application, in an event loop of its own; call it in a thread without one.

    `on_part` is called with each part of the answer as it comes.
    """
    return asyncio.run(_request(app, _scope(method, path, query or {}), body, on_part))


async def _request(
    app: Any, scope: dict[str, Any], body: Any, on_part: Callable[[bytes], None] | None
) -> LocalResponse:
    content = b"" if body is None else json.dumps(body).encode()
    incoming = [{"type": "http.request", "body": content, "more_body": False}]
    status, media_type, parts = 500, "", list[bytes]()

    async def receive() -> Any:
        return incoming.pop() if incoming else await asyncio.Event().wait()  # nobody disconnects

    async def send(message: Any) -> None:
        nonlocal status, media_type
        if message["type"] == "http.response.start":
            headers = {name.lower(): value for name, value in message["headers"]}
            status, media_type = message["status"], headers.get(b"content-type", b"").decode()
        elif part := message.get("body", b""):
            parts.append(part)
            if on_part is not None:
                on_part(part)

    await app(scope, receive, send)
    return LocalResponse(status, media_type, b"".join(parts))


def _scope(method: str, path: str, query: dict[str, Any]) -> dict[str, Any]:
    text = urlencode({name: value for name, value in query.items() if value is not None})
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": quote(path).encode(),
        "query_string": text.encode(),
        "root_path": "",
        "headers": [(b"host", b"localhost"), (b"content-type", b"application/json")],
        "client": None,
        "server": None,
    }
