"""The page is shown before torch is imported, with a recording inside; what needs the API waits for it."""

import base64
import json
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import torch
from starlette.testclient import TestClient

from softlook.lens.trace_page import record
from softlook.studio.export import record_answers
from softlook.studio.page import DeferredApi, example_recording, guarded
from softlook.studio.recordings import example_studio, load_example
from softlook.studio.security import Sessions
from softlook.studio.session import Studio
from tests.studio.small import URL

IMPORTS = """
import sys
from softlook.cli.commands.studio import studio
from softlook.studio.page import DeferredApi, example_recording
from softlook.studio.server import run
print(*sorted({"fastapi", "numpy", "safetensors", "torch", "transformers"} & set(sys.modules)))
"""


def test_serving_the_page_imports_nothing_heavy() -> None:
    found = subprocess.run([sys.executable, "-c", IMPORTS], capture_output=True, text=True, check=True)
    assert found.stdout.split() == []


def test_the_page_has_its_recording_before_the_api_is_built() -> None:
    opened: list[Studio] = []

    def open_studio() -> Studio:
        opened.append(example_studio())
        return opened[-1]

    sessions = Sessions()
    client = TestClient(guarded(DeferredApi(open_studio), sessions, example_recording()), base_url=URL)
    assert client.get("/api/info").status_code == 401
    page = client.get("/", params={"token": sessions.new_token()})
    config = page.text.partition('id="softlook-config">')[2].partition("</script>")[0]
    shown = json.loads(config)
    assert (shown["transport"], shown["recording"]["info"]["id"]) == ("http", "date")
    assert client.get("/studio.js").status_code == 200
    assert opened == []
    info = client.get("/api/info").json()
    assert client.get("/api/info").json() == info
    assert len(opened) == 1
    assert [one["id"] for one in info["traces"]] == ["date"]  # the page goes on with the same trace


def test_the_recording_of_the_page_is_the_one_that_ships_with_the_package() -> None:
    example = load_example()
    expected = record(example.trace, example.info(), record_answers(example))
    shipped = json.loads(example_recording())
    assert shipped["info"] == {**expected["info"], "id": "date"}
    assert "<" not in example_recording()
    for one, other in zip(shipped["attentions"], expected["attentions"], strict=True):
        assert one.keys() == other.keys()
        for name in ("query", "key", "lse", "value_norm"):
            torch.testing.assert_close(numbers(one[name]), numbers(other[name]), rtol=1e-4, atol=1e-5)


def numbers(array: dict[str, Any]) -> torch.Tensor:
    assert array["dtype"] == "f32"
    return torch.from_numpy(np.frombuffer(base64.b64decode(array["data"]), "<f4").copy()).view(array["shape"])


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
def test_the_page_is_only_read(method: str) -> None:
    sessions = Sessions()
    client = TestClient(guarded(DeferredApi(example_studio), sessions), base_url=URL)
    assert client.request(method, "/", params={"token": sessions.new_token()}).status_code == 401
