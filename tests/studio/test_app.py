"""Every route answers, is described, and turns mistakes into errors with a reason."""

from itertools import cycle, product
from typing import Any

import pytest
from starlette.routing import Route
from starlette.testclient import TestClient

from softlook.studio.app import create_app
from softlook.studio.frames import decode_frame
from softlook.studio.session import Studio
from tests.studio.small import first_id, live_studio, open_browser

HEADS = ("tile", "weights", "lanes", "strong", "scores", "qk", "explain")
NEEDED: dict[str, dict[str, Any]] = {"scores": {"row": 3}, "explain": {"row": 3, "column": 1}}
STRANGE = ["", "-1", "99999999999", "mean", "1:2:3", "nan", "../../etc/passwd", "é", "5:1", "-2", "0x1", "\x00", "1e9"]
PARAMETERS = ("head", "attention", "level", "row", "column", "rows", "columns", "kind", "name", "size", "position", "k")


@pytest.fixture(scope="module")
def studio() -> Studio:
    return live_studio()


@pytest.fixture(scope="module")
def client(studio: Studio) -> TestClient:
    return open_browser(studio)


def test_every_route_is_described(studio: Studio, client: TestClient) -> None:
    app = create_app(studio).routes
    paths: set[str] = set()
    for router in app.routes:
        inner = getattr(router, "original_router", None)
        paths |= {route.path for route in ([router] if inner is None else inner.routes) if isinstance(route, Route)}
    described = client.get("/api/openapi.json").json()["paths"]
    assert {path.replace(":path}", "}") for path in paths if path.startswith("/api/")} - {"/api/openapi.json"} == set(
        described
    )
    for path, item in described.items():
        for operation in item.values():
            assert operation["description"], path


@pytest.mark.parametrize("name", [*HEADS, "overview", "rollout", "head_table", "logit_lens", "next"])
def test_every_question_about_a_trace_has_an_answer(client: TestClient, studio: Studio, name: str) -> None:
    query = {"attention": "0", "head": "1", **NEEDED.get(name, {})} if name in HEADS else {}
    answer = client.get(f"/api/traces/{first_id(studio)}/{name}", params=query)
    assert answer.status_code == 200, answer.text
    if answer.headers["content-type"] == "application/octet-stream":
        assert decode_frame(answer.content).values.isfinite().any()
    else:
        assert answer.json()


def test_an_answer_that_the_browser_has_is_not_sent_again(client: TestClient, studio: Studio) -> None:
    path, query = f"/api/traces/{first_id(studio)}/tile", {"attention": "0", "head": "0"}
    first = client.get(path, params=query)
    again = client.get(path, params=query, headers={"if-none-match": first.headers["etag"]})
    other = client.get(path, params={**query, "head": "1"}, headers={"if-none-match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert other.status_code == 200
    assert other.headers["etag"] != first.headers["etag"]


def test_no_parameter_is_an_internal_error(client: TestClient, studio: Studio) -> None:
    values = cycle(STRANGE)
    for name, parameter in product((*HEADS, "overview", "rollout", "next", "logit_lens"), PARAMETERS):
        query = {"attention": "0", "head": "0", **NEEDED.get(name, {}), parameter: next(values)}
        answer = client.get(f"/api/traces/{first_id(studio)}/{name}", params=query)
        assert answer.status_code in (200, 400), (name, query, answer.text)
        assert answer.status_code == 200 or answer.json()["error"]["message"]


def test_unknown_traces_and_routes_are_not_found(client: TestClient) -> None:
    for path in ("/api/traces/zzz", "/api/traces/zzz/tile?attention=0&head=0", "/api/twins/a/difference?attention=0"):
        answer = client.get(path)
        assert (answer.status_code, bool(answer.json()["error"]["message"])) == (404, True)
    assert client.get("/api/nothing").status_code == 404
    assert client.post("/api/info").status_code == 405


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("trace", {}),
        ("trace", {"text": 1}),
        ("trace", {"text": "x", "unknown": 1}),
        ("trace", {"text": "x" * 100}),  # beyond the context
        ("beams", {"text": "x"}),
        ("generate", {"prompt": "x", "temperature": -1}),
        ("twins", {"first": "ab", "second": "abc"}),
        ("traces/{id}/intervene", {"ablate": [{"layer": 0, "heads": [9]}]}),
        ("traces/{id}/intervene", {"temperature": [{"layer": "nothing", "heads": [0], "value": 1}]}),
        ("traces/{id}/intervene", {"mask": [500]}),
        ("traces/{id}/intervene", {"position": 500}),
        ("table/predict", {"row": {}}),
    ],
)
def test_mistakes_in_a_body_are_errors_with_a_reason(
    client: TestClient, studio: Studio, path: str, body: dict[str, Any]
) -> None:
    answer = client.post(f"/api/{path.replace('{id}', first_id(studio))}", json=body)
    assert answer.status_code == 400, answer.text
    assert answer.json()["error"]["message"]
