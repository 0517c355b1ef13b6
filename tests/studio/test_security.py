"""Only a browser that opened the link reads anything, and the page runs no code but its own."""

import socket
from collections.abc import Iterator

import pytest
from starlette.testclient import TestClient

from softlook.base.errors import ConfigError
from softlook.studio.app import create_app
from softlook.studio.security import POLICY, Sessions
from softlook.studio.server import check_address, link
from softlook.studio.session import Studio
from tests.studio.small import browser, first_id, live_studio, open_browser, recorded_studio

HOSTILE = [
    "</script><script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "\u202eevil\u2066",
    "\x00\x1b[31m",
    '"><svg onload=alert(1)>',
    "${alert(1)}",
    "javascript:alert(1)",
]
TOKEN = "correct-horse-battery-staple"


@pytest.fixture(scope="module")
def studio() -> Iterator[Studio]:
    yield live_studio()


def api_paths(studio: Studio) -> list[tuple[str, str]]:
    """Method and path of every route under /api."""
    schema = create_app(studio).routes.openapi()
    found = [(method.upper(), path.replace("{id}", "t1")) for path, item in schema["paths"].items() for method in item]
    assert len(found) > 25
    return [*found, ("GET", "/api/openapi.json"), ("GET", "/api/nothing"), ("GET", "/api")]


def test_no_route_of_the_api_answers_without_a_session(studio: Studio) -> None:
    client = browser(studio)
    for method, path in api_paths(studio):
        for cookies in ("", "softlook-00000000=x", "a=b; ;;="):
            answer = client.request(method, path, headers=[("cookie", cookies)])
            assert (answer.status_code, "open the link" in answer.text) == (401, True), path


def test_a_link_opens_one_browser(studio: Studio) -> None:
    sessions = Sessions()
    token = sessions.new_token()
    first, second = (
        browser(studio, sessions),
        TestClient(create_app(studio, sessions), base_url="http://127.0.0.1:9000"),
    )
    assert first.get("/", params={"token": token}).status_code == 200
    assert first.get("/api/info").status_code == 200
    assert first.get("/", params={"token": token}).status_code == 200  # reloaded
    assert second.get("/", params={"token": token}).status_code == 401
    assert second.get("/api/info").status_code == 401
    assert second.get("/").status_code == 401


def test_a_token_of_the_user_opens_any_number_of_browsers(studio: Studio) -> None:
    sessions = Sessions(TOKEN)
    for _ in range(2):
        client = browser(studio, sessions)
        assert client.get("/", params={"token": TOKEN}).status_code == 200
        assert client.get("/api/info").status_code == 200
    assert browser(studio, sessions).get("/", params={"token": TOKEN[:-1]}).status_code == 401


def test_the_cookie_is_out_of_reach_of_scripts_and_of_other_sites(studio: Studio) -> None:
    sessions = Sessions()
    answer = browser(studio, sessions).get("/", params={"token": sessions.new_token()})
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie
    assert Sessions().cookie != sessions.cookie  # studios on other ports of this machine


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "", "localhost:1:2", "10.0.0.1"])
def test_other_host_names_are_refused(studio: Studio, host: str) -> None:
    answer = open_browser(studio).get("/api/info", headers={"host": host})
    assert answer.status_code == 403


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://127.0.0.1:9001", "http://127.0.0.1"])
def test_requests_of_other_pages_are_refused(studio: Studio, origin: str) -> None:
    client = open_browser(studio)
    assert client.post("/api/trace", json={"text": "x"}, headers={"origin": origin}).status_code == 403
    assert client.get("/api/info", headers={"origin": "http://127.0.0.1:9000"}).status_code == 200


def test_every_response_forbids_framing_sniffing_and_foreign_content(studio: Studio) -> None:
    client = open_browser(studio)
    for path in ("/", "/studio.js", "/studio.css", "/api/info", f"/api/traces/{first_id(studio)}", "/nothing"):
        headers = client.get(path).headers
        assert "default-src 'none'" in headers["content-security-policy"], path
        assert "frame-ancestors 'none'" in headers["content-security-policy"], path
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
    assert "unsafe" not in POLICY
    assert client.get("/").headers["content-security-policy"] == POLICY


def test_the_page_has_no_inline_code() -> None:
    page = open_browser(live_studio()).get("/").text
    assert " on" + "click" not in page
    assert "<style" not in page
    for tag in page.split("<script")[1:]:
        assert 'type="application/json"' in tag or 'src="' in tag


def test_texts_of_tokens_reach_the_browser_as_json_only() -> None:
    studio = recorded_studio(HOSTILE)
    client = open_browser(studio)
    answer = client.get("/api/info")
    assert answer.headers["content-type"] == "application/json"
    assert answer.json()["traces"][0]["rowTokens"] == HOSTILE
    assert "alert" not in client.get("/").text
    error = client.get(f"/api/traces/{first_id(studio)}/tile", params={"attention": HOSTILE[0], "head": "0"})
    assert (error.status_code, error.headers["content-type"]) == (400, "application/json")


def test_an_address_that_others_reach_needs_a_token() -> None:
    check_address("127.0.0.1", None)
    check_address("0.0.0.0", TOKEN)
    for host in ("0.0.0.0", "192.168.1.2", "::"):
        with pytest.raises(ConfigError, match="a token is required"):
            check_address(host, None)
    with pytest.raises(ConfigError, match="at least 16"):
        check_address("127.0.0.1", "short")


def test_the_printed_link_opens_the_studio(studio: Studio) -> None:
    sessions = Sessions()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = link(listener, sessions)
    assert browser(studio, sessions).get(url.partition("/?")[1] + url.partition("/?")[2]).status_code == 200


def test_a_body_that_is_too_large_is_refused(studio: Studio) -> None:
    answer = open_browser(studio).post("/api/trace", content=b"x" * (1 << 21))
    assert answer.status_code == 413
