"""The pages at / and /docs: complete in themselves, and nothing about the models without the token."""

import base64
import hashlib
import re
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from softlook.serve.app import create_app
from softlook.serve.loaded_model import ROUTES
from softlook.serve.pages import PAGES
from softlook.serve.registry import ModelRegistry

FOLDER = Path(__file__).parents[2] / "src/softlook/serve/pages"


@pytest.mark.parametrize("path", PAGES)
def test_a_page_loads_nothing_from_elsewhere(client: TestClient, path: str) -> None:
    found = client.get(path)
    assert found.status_code == 200 and found.headers["content-type"].startswith("text/html")
    assert not re.search(r"https?://|src=|@import|\burl\(", found.text)
    assert found.headers.get_list("content-security-policy")[0].startswith("default-src 'none'")


@pytest.mark.parametrize("path", PAGES)
def test_the_content_security_policy_allows_just_the_pages_own_style_and_script(client: TestClient, path: str) -> None:
    found = client.get(path)
    (policy,) = found.headers.get_list("content-security-policy")
    for tag in ("style", "script"):
        (content,) = re.findall(rf"<{tag}>(.*?)</{tag}>", found.text, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy


@pytest.mark.parametrize("path", PAGES)
def test_without_the_token_a_page_asks_for_it_and_names_no_model(registry: ModelRegistry, path: str) -> None:
    client = TestClient(create_app(registry, token="correct-horse-battery-staple"), base_url="http://localhost")
    found = client.get(path)
    assert found.status_code == 401 and "Bearer token of this server" in found.text
    assert found.headers["www-authenticate"] == "Bearer"
    assert client.get("/v1/models").json()["error"]["type"] == "authentication_error"


def test_the_form_knows_every_route() -> None:
    script = (FOLDER / "index.js").read_text(encoding="utf-8")
    for capability, route in ROUTES.items():
        assert f'{capability}: "{route}"' in script and f'"{route}": ' in script


def test_the_scripts_never_set_html() -> None:
    for file in FOLDER.glob("*.js"):
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(", file.read_text())
