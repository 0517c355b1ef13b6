"""What the page changes in a model is what the library changes, and every stream ends with what it promised."""

import json
from typing import Any

import pytest
import torch
from starlette.testclient import TestClient

from softlook.lens import ablate, logit_contributions, logit_lens, mask_keys, patch, trace, value_weighted_attention
from softlook.lens.interventions import attention_temperature
from softlook.studio.frames import decode_frame
from softlook.studio.session import MAX_RECORDINGS, Studio
from tests.studio.small import TEXT, first_id, live_gpt, live_studio, open_browser

PATH = "blocks.1.attn"


@pytest.fixture(scope="module")
def studio() -> Studio:
    return live_studio()


@pytest.fixture(scope="module")
def client(studio: Studio) -> TestClient:
    return open_browser(studio)


def model_and_ids(studio: Studio, text: str = TEXT) -> tuple[Any, torch.Tensor]:
    assert studio.live is not None
    return studio.live.model, studio.live.encode(text, None, None).args[0]


def events(client: TestClient, path: str, body: dict[str, Any]) -> list[tuple[str, Any]]:
    text = client.post(f"/api/{path}", json=body).text
    blocks = [block.split("\n") for block in text.strip().split("\n\n")]
    return [(name.removeprefix("event: "), json.loads(data.removeprefix("data: "))) for name, data in blocks]


def check_outputs(answer: dict[str, Any], name: str, logits: torch.Tensor) -> None:
    chances = logits[0, -1].softmax(-1)
    for token, p in answer[name]:
        assert p == pytest.approx(chances[ord(token)].item(), rel=1e-4)


def test_an_intervention_is_that_of_the_library(studio: Studio, client: TestClient) -> None:
    model, ids = model_and_ids(studio)
    body = {
        "ablate": [{"layer": PATH, "heads": [1], "amount": 0.5, "replacement": "mean"}],
        "temperature": [{"layer": 0, "heads": [0, 2], "value": 3}],
        "mask": [2],
    }
    answer = client.post(f"/api/traces/{first_id(studio)}/intervene", json=body).json()
    with (
        torch.no_grad(),
        ablate(model, PATH, [1], "mean", amount=0.5),
        attention_temperature(model, "blocks.0.attn", [0, 2], 3),
        mask_keys(model, [2]),
        trace(model) as changed,
    ):
        logits = model(ids)
    check_outputs(answer, "after", logits)
    with torch.no_grad():
        check_outputs(answer, "before", model(ids))
    found = client.get(f"/api/traces/{answer['id']}/weights", params={"attention": PATH}).content
    torch.testing.assert_close(decode_frame(found).values, changed[PATH].weights()[0])


def test_an_intervention_leaves_no_trace_in_the_model(studio: Studio, client: TestClient) -> None:
    model, ids = model_and_ids(studio)
    with torch.no_grad():
        before = model(ids)
        client.post(f"/api/traces/{first_id(studio)}/intervene", json={"ablate": [{"layer": 0, "heads": [0]}]})
        client.post(f"/api/traces/{first_id(studio)}/intervene", json={"ablate": [{"layer": 0, "heads": [99]}]})
        assert torch.equal(model(ids), before)


def test_twins_and_patches_are_those_of_the_library(studio: Studio, client: TestClient) -> None:
    model, first = model_and_ids(studio, "tired cat")
    _, second = model_and_ids(studio, "tired dog")
    pair = client.post("/api/twins", json={"first": "tired cat", "second": "tired dog"}).json()
    assert pair["changed"] == [6, 7, 8]
    with torch.no_grad(), trace(model, values=True) as one:
        model(first)
    with torch.no_grad(), trace(model, values=True) as other:
        model(second)
    frame = client.get(f"/api/twins/{pair['id']}/difference", params={"attention": PATH, "head": "3"}).content
    expected = other[PATH].weights() - one[PATH].weights()
    torch.testing.assert_close(decode_frame(frame).values, expected[0, 3])
    body = {"layer": PATH, "heads": [1, 2], "positions": [7]}
    answer = client.post(f"/api/twins/{pair['id']}/patch", json=body).json()
    with torch.no_grad(), patch(model, other, PATH, heads=[1, 2], positions=[7]):
        check_outputs(answer, "patched", model(first))
    with torch.no_grad():
        check_outputs(answer, "before", model(first))
        check_outputs(answer, "target", model(second))


def test_value_weighted_maps_contributions_and_logit_lens_are_those_of_the_library(
    studio: Studio, client: TestClient
) -> None:
    model, ids = model_and_ids(studio)
    recording = studio.recording(first_id(studio))
    query = {"attention": PATH, "kind": "value_weighted"}
    weighted = decode_frame(client.get(f"/api/traces/{recording.id}/weights", params=query).content).values
    torch.testing.assert_close(weighted, value_weighted_attention(model, recording.trace, PATH)[0])
    parts = logit_contributions(model, ids, token=65, position=4)
    query = {"attention": PATH, "kind": "contribution", "rows": "4:5", "token": 65}
    found = decode_frame(client.get(f"/api/traces/{recording.id}/weights", params=query).content).values
    torch.testing.assert_close(found[:, 0], parts.sources[PATH][0])
    lens = client.get(f"/api/traces/{recording.id}/logit_lens", params={"position": 3}).json()
    expected = logit_lens(model, recording.trace)["blocks.0"][0, 3].softmax(-1)
    for token, p in lens[0]["tokens"]:
        assert p == pytest.approx(expected[ord(token)].item(), rel=1e-4)


def test_generation_streams_each_token_and_ends_with_a_trace(studio: Studio, client: TestClient) -> None:
    found = events(client, "generate", {"prompt": "abc", "max_new_tokens": 4})
    assert [name for name, _ in found] == ["token"] * 4 + ["done"]
    model, ids = model_and_ids(studio, "abc")
    with torch.no_grad():
        assert found[0][1]["id"] == int(model(ids)[0, -1].argmax())
    for _, one in found[:-1]:
        assert one["candidates"][0] == [one["token"], pytest.approx(one["p"])]
    done = found[-1][1]
    assert "".join(done["info"]["rowTokens"]) == "abc" + "".join(one["token"] for _, one in found[:-1])
    assert client.get(f"/api/traces/{done['trace']}").status_code == 200


def test_an_error_in_a_stream_is_an_event(client: TestClient) -> None:
    (name, data), *_ = events(client, "generate", {"prompt": "x" * 100, "max_new_tokens": 1})
    assert (name, bool(data["message"])) == ("error", True)


def test_many_traces_drop_the_oldest_but_not_the_first() -> None:
    studio = Studio(live=live_gpt())
    first = studio.record(TEXT)
    studio.keep(first.id)
    last = [studio.record("ab") for _ in range(MAX_RECORDINGS + 3)][-1]
    assert len(studio.info()["traces"]) == MAX_RECORDINGS + 1
    assert studio.recording(first.id) is first
    assert studio.recording(last.id) is last
