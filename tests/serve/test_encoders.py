"""Empty and long texts at /v1/classify and /v1/embeddings: as on the command line."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from starlette.testclient import TestClient

from softlook.recipes.inference.encoding import classify
from softlook.recipes.inference.pipeline import Pipeline
from softlook.serve.registry import ModelRegistry
from softlook.weights.assets import SpecialTokens
from tests.serve.tiny_models import CONTEXT, words

LONG = "sea shells " * 30


def pipeline_of(registry: ModelRegistry, name: str) -> Pipeline:
    """The served model as the command line uses it."""
    loaded = registry.deployments[name].loaded
    device = torch.device("cpu")
    return Pipeline(name, loaded.model, loaded.tokenizer, SpecialTokens(), loaded.labels, device)  # pyright: ignore[reportAttributeAccessIssue]


def post(client: TestClient, route: str, **body: Any) -> Any:
    found = client.post(route, json=body)
    assert found.status_code == 200, found.text
    return found.json()


@pytest.mark.parametrize("empty", ["", " \n"])
def test_an_empty_text_has_no_class(client: TestClient, empty: str) -> None:
    first, second = post(client, "/v1/classify", model="classify", text=[empty, "sea"])["data"]
    assert (first["label"], first["score"], first["scores"], first["num_tokens"]) == (None, None, [], 0)
    assert second["label"] is not None and second["index"] == 1
    (alone,) = post(client, "/v1/classify", model="classify", text=empty)["data"]
    assert alone["label"] is None


def test_the_embedding_of_an_empty_text_is_that_of_its_special_tokens(
    client: TestClient, registry: ModelRegistry
) -> None:
    empty, other = post(client, "/v1/embeddings", model="embed", input=["", "sea"])["data"]
    tokenizer, model = words(), registry.get("embed", "embeddings").loaded.model
    with torch.no_grad():
        (expected,) = model(torch.tensor([[tokenizer.cls_id, tokenizer.sep_id]]))
    assert empty["embedding"] == pytest.approx(expected.tolist(), abs=1e-5) and empty["num_tokens"] == 2
    assert other["embedding"] != empty["embedding"]


def test_an_empty_text_has_an_empty_translation(client: TestClient) -> None:
    assert post(client, "/v1/translate", model="translate", text="")["data"][0]["text"] == ""


@pytest.mark.parametrize("pair", [None, "", "she sells", LONG])
def test_a_long_text_is_truncated_as_by_the_command_line(
    client: TestClient, registry: ModelRegistry, pair: str | None
) -> None:
    body = {"model": "classify", "text": LONG} | ({} if pair is None else {"text_pair": pair})
    found = post(client, "/v1/classify", **body)
    (item,) = found["data"]
    (expected,) = classify(pipeline_of(registry, "classify"), [(LONG, pair)] if pair else [LONG])
    scores = {score["label"]: score["score"] for score in item["scores"]}
    assert scores == pytest.approx(expected.classes, rel=1e-4)
    assert item["truncated"] and item["num_tokens"] > CONTEXT >= found["usage"]["prompt_tokens"]


def test_a_long_text_is_truncated_before_it_is_embedded(client: TestClient) -> None:
    long, short = post(client, "/v1/embeddings", model="embed", input=[LONG, "sea"])["data"]
    assert long["truncated"] and long["num_tokens"] > CONTEXT
    assert not short["truncated"]


def test_a_list_of_ids_that_is_too_long_is_rejected(client: TestClient) -> None:
    found = client.post("/v1/embeddings", json={"model": "embed", "input": [[20] * 500]})
    assert found.status_code == 400 and found.json()["error"]["param"] == "input[0]"


def test_a_multi_label_model_returns_the_labels_above_the_threshold(
    client: TestClient, registry: ModelRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    item = _classify_as("multi_label", client, registry, monkeypatch)
    (expected,) = classify(pipeline_of(registry, "classify"), ["sea"])
    assert item["labels"] == list(expected.labels) and item["value"] is None
    assert [score["label"] for score in item["scores"]] == [next(iter(expected.classes))]


def test_a_regression_model_returns_a_value(
    client: TestClient, registry: ModelRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    item = _classify_as("regression", client, registry, monkeypatch)
    assert item["value"] == item["score"] and item["labels"] is None


def _classify_as(
    problem: str, client: TestClient, registry: ModelRegistry, monkeypatch: pytest.MonkeyPatch
) -> dict[str, Any]:
    model: Any = registry.deployments["classify"].loaded.model  # pyright: ignore[reportAttributeAccessIssue]
    monkeypatch.setattr(model, "config", replace(model.config, problem=problem))
    return post(client, "/v1/classify", model="classify", text="sea", top_k=1)["data"][0]
