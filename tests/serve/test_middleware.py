"""Authentication, host and origin checks and body limits apply to every route: all of them are tested."""

import asyncio
import json
import time
from typing import Any

import pytest
from starlette.routing import Route
from starlette.testclient import TestClient
from starlette.websockets import WebSocketDisconnect

from softlook.base.errors import ConfigError
from softlook.serve.app import create_app
from softlook.serve.engine.request import ServerLimits
from softlook.serve.middleware import BodyLimit, HostOriginCheck
from softlook.serve.registry import ModelRegistry
from softlook.serve.server import ServerConfig

TOKEN = "correct-horse-battery-staple"
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE")


def all_paths(app: Any) -> list[str]:
    """All paths of the server, and some that do not exist."""
    found = paths_of(app.routes.routes)
    assert set(app.openapi()["paths"]) <= set(found)
    assert {"/healthz", "/metrics", "/v1/models", "/v1/completions", "/openapi.json"} <= set(found)
    return [*(path.replace("{model}", "gpt") for path in found), "/", "/nothing", "/v1", "//v1/models", "/v1/models/"]


def paths_of(routes: Any) -> list[str]:
    """Paths of routes and of nested routers; an unknown type raises, because it would not be tested."""
    found: list[str] = []
    for route in routes:
        inner = getattr(route, "original_router", None)
        assert inner is not None or isinstance(route, Route), f"unknown route type {type(route)}"
        found += [route.path] if inner is None else paths_of(inner.routes)
    return found


@pytest.fixture(scope="module")
def secured(registry: ModelRegistry) -> Any:
    return create_app(registry, token=TOKEN)


def test_no_route_responds_without_the_token(secured: Any) -> None:
    client = TestClient(secured, base_url="http://localhost")
    wrong: tuple[dict[str, str], ...] = (
        {},
        {"authorization": ""},
        {"authorization": "Bearer"},
        {"authorization": "Bearer "},
        {"authorization": TOKEN},
        {"authorization": f"Basic {TOKEN}"},
        {"authorization": f"Bearer {TOKEN[:-1]}"},
        {"authorization": f"Bearer {TOKEN}x"},
        {"authorization": f"Bearer {TOKEN.upper()}"},
        {"authorization": "Bearer é"},
        {"x-api-key": TOKEN},
        {"cookie": f"token={TOKEN}"},
    )
    count = 0
    for path in all_paths(secured):
        for method in METHODS:
            for headers in wrong:
                sent = {name: value.encode("latin-1") for name, value in headers.items()}
                found = client.request(method, f"{path}?token={TOKEN}", headers=sent)  # pyright: ignore[reportArgumentType]
                assert found.status_code == 401, (method, path, headers, found.status_code)
                count += 1
    assert count > 1000


def test_every_route_responds_with_the_token(secured: Any) -> None:
    client = TestClient(secured, base_url="http://localhost", headers={"authorization": f"bearer {TOKEN}"})
    for path in all_paths(secured):
        found = client.get(path, follow_redirects=False)
        assert found.status_code not in (401, 403), (path, found.status_code)


UNKNOWN_HOSTS = (
    "evil.example",
    "localhost.evil.example",
    "127.0.0.1.nip.io",
    "localhost.",
    "localhost:80:80",
    "localhost:x",
    "localhost@evil.example",
    "evil.example@localhost",
    "localhost/evil",
    "localhost evil",
    "localhost,evil.example",
    "[::1",
    "[::1]evil",
    "[evil.example]",
    "::1",
    "0.0.0.0",
    "127.1",
    "2130706433",
    "0x7f000001",
    "10.0.0.1",
    "",
    " ",
    "lоcalhost",  # with a Cyrillic letter
    "localhost#",
    "localhost?",
    "*",
)
OWN_HOSTS = ("localhost", "localhost:8000", "127.0.0.1", "127.0.0.1:1", "[::1]", "[::1]:8000", "LOCALHOST")


def status_of(app: Any, path: str, headers: list[tuple[bytes, bytes]], method: str = "GET") -> int:
    """The status of a request with exactly these headers."""
    scope = {"type": "http", "method": method, "path": path, "raw_path": path.encode(), "headers": headers}
    scope |= {"query_string": b"", "root_path": "", "scheme": "http", "http_version": "1.1", "server": ("x", 1)}
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    asyncio.run(app(scope, receive, send))
    return sent[0]["status"]


def test_no_route_responds_to_an_unknown_host(registry: ModelRegistry) -> None:
    app = create_app(registry)
    for path in all_paths(app):
        for host in UNKNOWN_HOSTS:
            assert status_of(app, path, [(b"host", host.encode())]) == 403, (path, host)
        assert status_of(app, path, []) == 403
        assert status_of(app, path, [(b"host", b"localhost"), (b"host", b"evil.example")]) == 403
        assert status_of(app, path, [(b"host", b"evil.example"), (b"x-forwarded-host", b"localhost")]) == 403
        for host in OWN_HOSTS:
            assert status_of(app, path, [(b"host", host.encode())]) != 403, (path, host)


OTHER_ORIGINS = (
    "http://evil.example",
    "null",
    "http://localhost.evil.example",
    "http://localhost:9999",
    "https://localhost:9999",
    "file://",
    "http://127.0.0.1:8000",
    "localhost:8000",
    "http://localhost:8000/",
    "ftp://localhost:8000",
    "",
)


def test_no_route_responds_to_other_origins(registry: ModelRegistry) -> None:
    app = create_app(registry)
    for path in all_paths(app):
        for origin in OTHER_ORIGINS:
            for method in ("GET", "POST", "OPTIONS"):
                headers = [(b"host", b"localhost:8000"), (b"origin", origin.encode())]
                assert status_of(app, path, headers, method) == 403, (path, origin)
        own = [(b"host", b"localhost:8000"), (b"origin", b"http://localhost:8000")]
        assert status_of(app, path, own) != 403
        assert status_of(app, path, [*own, (b"origin", b"http://evil.example")]) == 403


def test_ip_addresses_and_allowed_hosts_are_accepted_beyond_localhost() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})

    check = HostOriginCheck(app, {"models.example"}, allow_ip_hosts=True)
    for host, status in (("10.0.0.7:8000", 200), ("[fe80::1]", 200), ("models.example", 200), ("evil.example", 403)):
        assert status_of(check, "/", [(b"host", host.encode())]) == status


def test_every_response_has_security_headers(registry: ModelRegistry) -> None:
    app = create_app(registry, token=TOKEN)
    client = TestClient(app, base_url="http://localhost")
    good = {"authorization": f"Bearer {TOKEN}"}
    for path in all_paths(app):
        for headers in (good, {}, {**good, "host": "evil.example"}, {**good, "origin": "http://evil.example"}):
            found = client.get(path, headers=headers, follow_redirects=False)
            assert found.headers["x-content-type-options"] == "nosniff"
            assert found.headers["content-security-policy"].startswith("default-src 'none'")
            assert found.headers["cache-control"] == "no-store" and "access-control-allow-origin" not in found.headers


def test_a_websocket_is_closed(client: TestClient) -> None:
    with pytest.raises(WebSocketDisconnect), client.websocket_connect("/v1/completions"):
        pass


@pytest.mark.parametrize("declared", [True, False], ids=["declared", "chunked"])
def test_a_body_of_ten_megabytes_is_rejected_immediately(client: TestClient, declared: bool) -> None:
    def parts() -> Any:
        for _ in range(160):
            yield b"x" * 65536

    start = time.perf_counter()
    found = client.post("/v1/completions", content=b"x" * 10_000_000 if declared else parts())
    assert found.status_code == 413 and "maximum of 1,048,576 bytes" in found.json()["error"]["message"]
    assert time.perf_counter() - start < 1.0  # about 100 ms on an idle machine


def test_a_very_long_prompt_is_rejected_before_tokenization(
    client: TestClient, registry: ModelRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []
    words = registry.get("gpt", "completions").loaded.tokenizer
    plain = words.encode
    monkeypatch.setattr(words, "encode", lambda texts: read.extend(map(len, texts)) or plain(texts))
    for prompt in ("a " * 50_000, "a" * 900_000, "\n" * 100_000, "日" * 100_000, [7] * 100_000):
        start = time.perf_counter()
        found = client.post("/v1/completions", json={"model": "gpt", "prompt": prompt})
        assert found.status_code == 400 and time.perf_counter() - start < 1.0, found.text
    assert sum(read) < 20_000


def test_a_body_that_never_ends_times_out() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        raise AssertionError("the body was accepted")

    async def receive() -> dict[str, Any]:
        await asyncio.sleep(0.02)
        return {"type": "http.request", "body": b"a", "more_body": True}

    sent: list[dict[str, Any]] = []

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    check = BodyLimit(app, ServerLimits(read_timeout=0.1))
    start = time.monotonic()
    asyncio.run(check({"type": "http", "headers": []}, receive, send))
    assert time.monotonic() - start < 1 and sent[0]["status"] == 408
    assert "within 0.1 s" in json.loads(sent[1]["body"])["error"]["message"]


@pytest.mark.parametrize("length", ["-1", "x", "1e9", "9" * 20, "1 2", ""])
def test_an_invalid_content_length_is_rejected(registry: ModelRegistry, length: str) -> None:
    headers = [(b"host", b"localhost"), (b"content-length", length.encode())]
    assert status_of(create_app(registry), "/v1/completions", headers, "POST") == 400


def test_a_token_is_required_beyond_localhost() -> None:
    with pytest.raises(ConfigError, match="0.0.0.0 is reachable from other machines.*--token-file FILE"):
        ServerConfig(host="0.0.0.0")
    with pytest.raises(ConfigError, match="at least 16 ASCII characters; got 5"):
        ServerConfig(host="0.0.0.0", token="short")
    assert ServerConfig(host="::1").token is None and ServerConfig(host="192.168.1.2", token=TOKEN).token == TOKEN
